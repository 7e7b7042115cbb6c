/* device - what every device does alike; see device.h. */
#include "trainer/ops/ops.h"

void device_close(struct device *dev)
{
    if (dev)
        dev->ops->close(dev);
}

/* p, or why it is NULL: the device's own reason says more. */
static void *given(struct device *dev, void *p, size_t bytes, struct ckpt_err *err)
{
    if (!p && device_sync(dev, err) == 0)
        ckpt_fail(err, CKPT_ENOMEM, "%s: no memory for %llu bytes", dev->ops->name,
                  (unsigned long long)bytes);
    return p;
}

void *device_alloc(struct device *dev, size_t bytes, struct ckpt_err *err)
{
    return given(dev, dev->ops->alloc(dev, bytes), bytes, err);
}

void *device_pin(struct device *dev, size_t bytes, struct ckpt_err *err)
{
    return given(dev, dev->ops->pin(dev, bytes), bytes, err);
}

int device_error(const struct device *dev, struct ckpt_err *err)
{
    int rc = dev->err.code;

    if (rc == 0 && device_stopped(dev))
        return ckpt_fail(err, CKPT_ESTOPPED, "stopped before all was computed");
    if (rc)
        *err = dev->err;
    return rc;
}

int device_sync(struct device *dev, struct ckpt_err *err)
{
    dev->ops->sync(dev);
    return device_error(dev, err);
}
