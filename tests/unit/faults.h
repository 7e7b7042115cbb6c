/*
 * faults - the n-th operation of a kind fails, for every n there is: the loop of all fault tests.
 *
 *   for (struct faults f = {.kinds = FAULT(READ) | FAULT(OPEN)}; faults_next(&f);) {
 *       rc = what_is_tested(&err);
 *       faults_disarm(&f);
 *       faults_told(&f, rc, &err, "reading");
 *   }
 *
 * A kind is done with the first round that nothing strikes.  A build without failures skips the test.
 */
#ifndef CKPT_TESTS_UNIT_FAULTS_H
#define CKPT_TESTS_UNIT_FAULTS_H

#include "tests/unit/unit.h"

#include "libckpt/base/fault.h"
#include "libckpt/err.h"

#define FAULT(kind) (1u << CKPT_FAULT_##kind)

struct faults {
    unsigned      kinds;                /* 0: all */
    unsigned long sparse;               /* after round n comes n + 1 + n / sparse; 0: n + 1 */
    bool          later;                /* a round is armed by faults_arm, not from its start */
    int           kind;
    unsigned long n, rounds;            /* n-th of this kind; rounds begun, of all kinds */
    bool          struck;               /* the operation was reached before faults_disarm */
};

static inline void faults_arm(const struct faults *f)
{
    (void)f;
#ifdef CKPT_FAULTS
    ckpt_fault_arm((enum ckpt_fault)f->kind, f->n);
#endif
}

static inline bool faults_next(struct faults *f)
{
#ifdef CKPT_FAULTS
    if (f->struck) {
        f->n += 1 + (f->sparse ? f->n / f->sparse : 0);
    } else {
        f->kind += f->n != 0;
        while (f->kinds && f->kind < CKPT_FAULT_KINDS && !(f->kinds >> f->kind & 1))
            f->kind++;
        f->n = 1;
    }
    if (f->kind == CKPT_FAULT_KINDS)
        return false;
    assert_true(f->rounds++ < 100000);
    if (!f->later)
        faults_arm(f);
    return true;
#else
    (void)f;
    skip();
    return false;
#endif
}

static inline void faults_disarm(struct faults *f)
{
    (void)f;
#ifdef CKPT_FAULTS
    f->struck = ckpt_fault_struck();
    ckpt_fault_arm((enum ckpt_fault)f->kind, 0);
#endif
}

/* A failure has its cause and its sentence.  May also succeed though struck, by another way. */
static inline void faults_told(const struct faults *f, int rc, const struct ckpt_err *err,
                               const char *what)
{
    if (rc && (!f->struck || rc != err->code || !err->text[0]))
        fail_msg("%s, kind %d, %lu: code %d: %s", what, f->kind, f->n, rc, err->text);
}

/* The same, and struck it fails, with that code. */
static inline void faults_fail(const struct faults *f, int rc, int code, const struct ckpt_err *err,
                               const char *what)
{
    faults_told(f, rc, err, what);
    if (rc != (f->struck ? code : 0))
        fail_msg("%s, kind %d, %lu: code %d, %d wanted: %s", what, f->kind, f->n, rc, code, err->text);
}

#endif
