/*
 * ckpt - the public face of libckpt: everything a program needs to read, view and write
 * checkpoints.  Include this one, link with `pkg-config --libs ckpt`; see libckpt(3).
 */
#ifndef CKPT_LIBCKPT_CKPT_H
#define CKPT_LIBCKPT_CKPT_H

#include "libckpt/commit.h"
#include "libckpt/convert.h"
#include "libckpt/copy.h"
#include "libckpt/digest.h"
#include "libckpt/dtype.h"
#include "libckpt/err.h"
#include "libckpt/file.h"
#include "libckpt/format.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/shape.h"
#include "libckpt/sink.h"
#include "libckpt/source.h"
#include "libckpt/split.h"
#include "libckpt/tensor.h"
#include "libckpt/view.h"

#define CKPT_VERSION "0.1.0"

#endif
