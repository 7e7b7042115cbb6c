/* cublasLt - see tests/emulate/cuda_runtime.h; nothing of it is used. */
#ifndef CKPT_TESTS_EMULATE_CUBLASLT_H
#define CKPT_TESTS_EMULATE_CUBLASLT_H
#endif
