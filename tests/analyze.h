/* analyze - included before everything by make analyze: clang's analyzer sees into no other file, and
 * would think that a failure may return 0. */
#ifndef CKPT_TESTS_ANALYZE_H
#define CKPT_TESTS_ANALYZE_H

#include "libckpt/fail.h"
#include "libckpt/mem.h"

/* No function, for those deep in calls of calls are not looked into. */
#define analyze_nonzero(call)        \
    ({                               \
        int code_of_call = (call);   \
        if (code_of_call == 0)       \
            __builtin_unreachable(); \
        code_of_call;                \
    })

#define ckpt_fail(...)       analyze_nonzero(ckpt_fail(__VA_ARGS__))
#define ckpt_fail_as(...)    analyze_nonzero(ckpt_fail_as(__VA_ARGS__))
#define ckpt_fail_errno(...) analyze_nonzero(ckpt_fail_errno(__VA_ARGS__))
#define ckpt_err_in(...)     analyze_nonzero(ckpt_err_in(__VA_ARGS__))
#define ckpt_err_hint(...)   analyze_nonzero(ckpt_err_hint(__VA_ARGS__))
#define ckpt_err_code(...)   analyze_nonzero(ckpt_err_code(__VA_ARGS__))
#define ckpt_nomem(...)      analyze_nonzero(ckpt_nomem(__VA_ARGS__))

#endif
