/* device - what every device does alike; see ops.h. */
#include "trainer/ops/ops.h"

void device_close(struct device *dev)
{
    if (dev)
        dev->ops->close(dev);
}

int device_sync(struct device *dev, struct ckpt_err *err)
{
    dev->ops->sync(dev);
    if (dev->err.code)
        *err = dev->err;
    return dev->err.code;
}
