/* A baseline file of any bytes: figures in (-1, 1), or an error that says why. */
#include "tests/fuzz/lib/target.h"
#include "tools/eval/score/baseline.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = (char *)copy_of(data, size);

    for (int64_t layer = 0; layer < 3; layer++) {
        struct ckpt_err err = {0};
        double figure[3];

        if (baseline_read(figure, text, size, layer, &err) == 0) {
            for (int k = 0; k < 3; k++)
                must(figure[k] > -1 && figure[k] < 1);
        } else {
            must(err.text[0]);
        }
    }
    free(text);
    return 0;
}
