/*
 * pickle/danger - names that no checkpoint needs, and the danger of each.
 *
 * Judged by class: modules (with everything below them), functions of modules that also have
 * harmless names, words that mean the same in any module, and the spelling of the name itself.
 * Callers consult their table of known names first: a name in neither is unknown. Source: the
 * facts of picklescan 1.0.5, fickling 0.1.12 and modelscan 0.8.8, and the standard library of
 * Python 3.13.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_DANGER_H
#define CKPT_FORMATS_CONTAINER_PICKLE_DANGER_H

#include <stdbool.h>

/* The danger of importing, or calling, module.name: "runs programs"; NULL when none is known.
 * name may have dots: protocol 4 follows them as attributes. */
const char *pickle_danger(const char *module, const char *name);
/* Whether name consists of identifiers joined by dots: letters, digits and "_", not beginning
 * with a digit. */
bool pickle_name_is_plain(const char *name);

#endif
