/* device - what every device does alike; see device.h. */
#include "trainer/ops/ops.h"

void device_close(struct device *dev)
{
    if (dev)
        dev->ops->close(dev);
}

void *device_alloc(struct device *dev, size_t bytes, struct ckpt_err *err)
{
    void *p = dev->ops->alloc(dev, bytes);

    if (!p && device_sync(dev, err) == 0)
        ckpt_fail(err, CKPT_ENOMEM, "%s: no memory for %llu bytes", dev->ops->name,
                  (unsigned long long)bytes);
    return p;
}

int device_sync(struct device *dev, struct ckpt_err *err)
{
    dev->ops->sync(dev);
    if (dev->err.code)
        *err = dev->err;
    return dev->err.code;
}
