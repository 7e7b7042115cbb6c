/*
 * page/style - the style sheet of the pages that tools write: colours for light and dark, figures,
 * cards, tables.
 *
 * Abbreviations: page.
 */
#ifndef CKPT_TOOLS_INSPECT_PAGE_STYLE_H
#define CKPT_TOOLS_INSPECT_PAGE_STYLE_H

extern const char page_style[];

#endif
