/* muon - steps of Muon. */
#include "trainer/cuda/cuda.h"

/* A run on a GPU is refused before it begins (run/optimizer.c). */
void cuda_muon(struct device *dev, enum op_muon_part part, const struct op_matrix *m,
               const struct adamw *a)
{
    (void)part;
    (void)m;
    (void)a;
    cuda_fail(dev, CKPT_EUNSUPPORTED, "Muon steps on CPUs alone");
}
