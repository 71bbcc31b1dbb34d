/* What the instrumented hosts share: the way into the plugin, checks that say where they failed, and a small chance. */
#ifndef PORTREEVE_TEST_HOST_H
#define PORTREEVE_TEST_HOST_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "portreeve.h"

static const pr_api *api;

#define CHECK(what) ((what) ? (void)0 : failed(#what, __FILE__, __LINE__, 0, 0))
#define CHECK_EQ(is, shall) expect((int64_t)(is), (int64_t)(shall), #is, __FILE__, __LINE__)
#define OK(call) CHECK_EQ(call, PR_OK)

static inline void failed(const char *what, const char *file, int line, int64_t is, int64_t shall) {
    char words[512] = "";
    uint32_t need;
    if (api != NULL) (void)api->last_error(words, sizeof words, &need);
    fprintf(stderr, "%s:%d: %s: is %lld, shall be %lld; last error: %s\n", file, line, what, (long long)is, (long long)shall, words);
    exit(1);
}

static inline void expect(int64_t is, int64_t shall, const char *what, const char *file, int line) {
    if (is != shall) failed(what, file, line, is, shall);
}

static inline pr_str str(const char *s) {
    pr_str t = {s, strlen(s)};
    return t;
}

/* The table; leaves this thread warm. Linked with STATIC_PLUGIN, the host has the plugin in itself. */
static inline void *load_plugin(const char *path) {
    const pr_hostinfo host = {sizeof host, PR_ABI, PR_CAP_ENDPOINTS};
    int32_t (*get_api)(const pr_hostinfo *, const pr_api **, uint32_t *) = NULL;
    void *so = NULL;
#ifdef STATIC_PLUGIN
    (void)path;
    get_api = pr_get_api;
#else
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&get_api = dlsym(so, "pr_get_api");
#endif
    CHECK(get_api != NULL);
    OK(get_api(&host, &api, NULL));
    uint32_t need;
    CHECK_EQ(api->last_error(NULL, 0, &need), PR_ENOSPC);
    return so;
}

/* xorshift64*: the same numbers from the same seed everywhere. */
static inline uint64_t chance(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static inline uint32_t below(uint64_t *state, uint32_t n) { return (uint32_t)(chance(state) >> 33) % n; }

#endif
