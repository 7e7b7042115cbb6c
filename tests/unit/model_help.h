/*
 * model_help - what the tests of the trainer's model share: cmocka, a description from JSON
 * text, a device.
 */
#ifndef CKPT_TESTS_UNIT_MODEL_HELP_H
#define CKPT_TESTS_UNIT_MODEL_HELP_H

#include "tests/unit/unit.h"

#include "libckpt/base/json.h"
#include "formats/families/arch.h"
#include "trainer/ops/ops.h"

/* A description that must be readable. */
static inline struct arch *arch_of(const char *text)
{
    struct ckpt_err err = {0};
    struct arch *arch = NULL;
    json_t *json = NULL;

    if (ckpt_json_parse(&json, text, strlen(text), CKPT_JSON_STRICT, &err) ||
        arch_read_json(&arch, json, &err))
        fail_msg("%s", err.text);
    json_decref(json);
    return arch;
}

/* A CPU that uses all threads, however little there is to do. */
static inline struct device *cpu_device(int threads)
{
    struct ckpt_err err = {0};
    struct device *dev;

    assert_int_equal(device_open_cpu(&dev, threads, &err), 0);
    dev->grain = 0;
    return dev;
}

#endif
