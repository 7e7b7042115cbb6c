/* logs/open - choose the reader for a log file, see run_log.h. */
#include <string.h>

#include "formats/logs/nvidia_smi.h"
#include "formats/logs/run_log.h"
#include "formats/logs/tfevents.h"
#include "formats/logs/wandb.h"

#define HEAD 4096

bool run_log_is(const unsigned char *head, size_t len)
{
    return tfevents_is(head, len) || wandb_is(head, len) || nvidia_smi_is(head, len);
}

int run_log_read(struct run_log **out, struct ckpt_file *file, struct ckpt_err *err)
{
    struct run_log *log = ckpt_alloc(1, sizeof *log);
    int rc;

    *out = NULL;
    if (!log)
        return ckpt_nomem(err, sizeof *log);
    log->info = json_object();
    rc = log->info ? ckpt_map_new(&log->by_key, 64, err) : ckpt_nomem(err, 64);
    if (rc == 0)
        rc = run_log_add(log, file, err);
    if (rc == 0) {
        *out = log;
        log = NULL;
    }
    run_log_free(log);
    return rc;
}

int run_log_add(struct run_log *log, struct ckpt_file *file, struct ckpt_err *err)
{
    uint64_t size = ckpt_file_size(file);
    size_t n = size < HEAD ? (size_t)size : HEAD;
    unsigned char head[HEAD];
    int rc;

    if (n > 0 && (rc = ckpt_file_read_at(file, head, n, 0, err)) != 0)
        return rc;
    if (tfevents_is(head, n) && (!log->format || strcmp(log->format, "tensorboard") == 0))
        return tfevents_read(log, file, err);
    if (log->format)
        return ckpt_fail(err, CKPT_EMISMATCH, "is not of one log with the files before it");
    if (wandb_is(head, n))
        return wandb_read(log, file, err);
    return nvidia_smi_is(head, n) ? nvidia_smi_read(log, file, err)
                                  : ckpt_fail(err, CKPT_EUNSUPPORTED, "neither a TensorBoard nor "
                                              "a W&B file, nor nvidia-smi's CSV");
}
