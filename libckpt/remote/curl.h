/*
 * curl - libcurl, loaded when the first address is opened.
 *
 * libcurl depends on some thirty libraries, which take longer to load than listing a checkpoint
 * takes.  A program that opens no address neither loads nor needs libcurl.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CURL_H
#define CKPT_LIBCKPT_REMOTE_CURL_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

/* The functions in use, named without "curl_". */
struct curl_calls {
    CURL *(*easy_init)(void);
    void (*easy_cleanup)(CURL *);
    void (*easy_reset)(CURL *);
    CURLcode (*easy_setopt)(CURL *, CURLoption, ...);
    CURLcode (*easy_getinfo)(CURL *, CURLINFO, ...);
    CURLcode (*easy_perform)(CURL *);
    const char *(*easy_strerror)(CURLcode);
    struct curl_slist *(*slist_append)(struct curl_slist *, const char *);
    void (*slist_free_all)(struct curl_slist *);
    time_t (*getdate)(const char *, const time_t *);
    CURLU *(*url)(void);
    void (*url_cleanup)(CURLU *);
    CURLUcode (*url_set)(CURLU *, CURLUPart, const char *, unsigned);
    CURLUcode (*url_get)(const CURLU *, CURLUPart, char **, unsigned);
    void (*free)(void *);
};

/* Any thread.  CKPT_EDEVICE when libcurl is not installed. */
int curl_open(const struct curl_calls **out, struct ckpt_err *err);

#endif
