/* curl - see curl.h. */
#include "libckpt/remote/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* PREREQFUNCTION is the newest option in use, PROTOCOLS_STR the next newest. */
#define OLDEST 0x075500     /* 7.85.0 */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct curl_calls calls;
static char trouble[200];   /* why libcurl cannot be loaded; "" when it is */

/* dlsym returns a pointer to data; POSIX guarantees that it can hold a function. */
static bool find(void *lib, const char *name, void *call)
{
    void *at = dlsym(lib, name);

    memcpy(call, &at, sizeof at);
    return at != NULL;
}

static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    curl_version_info_data *(*version)(CURLversion) = NULL;
    CURLcode (*global_init)(long) = NULL;
    void *lib = NULL;
    bool all;

    for (size_t i = 0; !lib && i < sizeof names / sizeof names[0]; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(trouble, sizeof trouble, "libcurl.so.4 cannot be loaded");
        return;
    }
    all = find(lib, "curl_global_init", &global_init) &&
          find(lib, "curl_version_info", &version) &&
          find(lib, "curl_easy_init", &calls.easy_init) &&
          find(lib, "curl_easy_cleanup", &calls.easy_cleanup) &&
          find(lib, "curl_easy_reset", &calls.easy_reset) &&
          find(lib, "curl_easy_setopt", &calls.easy_setopt) &&
          find(lib, "curl_easy_getinfo", &calls.easy_getinfo) &&
          find(lib, "curl_easy_perform", &calls.easy_perform) &&
          find(lib, "curl_easy_strerror", &calls.easy_strerror) &&
          find(lib, "curl_slist_append", &calls.slist_append) &&
          find(lib, "curl_slist_free_all", &calls.slist_free_all) &&
          find(lib, "curl_getdate", &calls.getdate) && find(lib, "curl_url", &calls.url) &&
          find(lib, "curl_url_cleanup", &calls.url_cleanup) &&
          find(lib, "curl_url_set", &calls.url_set) &&
          find(lib, "curl_url_get", &calls.url_get) && find(lib, "curl_free", &calls.free);
    if (!all || version(CURLVERSION_NOW)->version_num < OLDEST)
        snprintf(trouble, sizeof trouble, "libcurl is older than 7.85");
    else if (global_init(CURL_GLOBAL_DEFAULT))
        snprintf(trouble, sizeof trouble, "libcurl cannot be set up");
}

int curl_open(const struct curl_calls **out, struct ckpt_err *err)
{
    pthread_once(&once, load);
    *out = trouble[0] ? NULL : &calls;
    if (!trouble[0])
        return 0;
    ckpt_fail(err, CKPT_EDEVICE, "%s, and addresses are read through it", trouble);
    return ckpt_err_hint(err, "Debian and Ubuntu have it as libcurl4");
}
