/*
 * pickle/danger - names that no checkpoint has a use for, and the danger of each.
 *
 * Judged by class: modules (with everything below them), functions of modules that have
 * harmless names too, words that mean the same in any module, and the spelling of the name
 * itself.  Who has a table of known names asks that first: what is in neither is unknown.
 * Source: the facts of picklescan 1.0.5, fickling 0.1.12 and modelscan 0.8.8, and the standard
 * library of Python 3.13.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_DANGER_H
#define CKPT_FORMATS_CONTAINER_PICKLE_DANGER_H

#include <stdbool.h>

/* The danger of importing, or calling, module.name: "runs programs"; NULL when there is none.
 * name may have dots: protocol 4 follows them as attributes. */
const char *pickle_danger(const char *module, const char *name);
/* Letters, digits and "_", not beginning with a digit, in parts joined by dots. */
bool pickle_name_is_plain(const char *name);

#endif
