/* The heap of a host that watches it: every block that the plugin takes comes through here, counted per thread, and the
 * one that is chosen is refused. Included once, by the host's only file; linked with -rdynamic, it goes before libc's. */
#ifndef PORTREEVE_TEST_HEAP_H
#define PORTREEVE_TEST_HEAP_H
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static __thread uint64_t heap_taken;   /* blocks asked for */
static __thread uint64_t heap_given;   /* blocks given back */
static __thread uint64_t heap_refuse;  /* 0: none; else the how manieth block from now on is refused */
static __thread int heap_refuse_rest;  /* and every later one too */
static __thread uint64_t heap_refused; /* how many were */

static inline int heap_refuses(void) {
    heap_taken++;
    if (heap_refuse == 0) return 0;
    if (heap_refuse > 1) {
        heap_refuse--;
        return 0;
    }
    if (!heap_refuse_rest) heap_refuse = 0;
    heap_refused++;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return heap_refuses() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return heap_refuses() ? NULL : __libc_calloc(n, size); }
void *memalign(size_t align, size_t n) { return heap_refuses() ? NULL : __libc_memalign(align, n); }
void *aligned_alloc(size_t align, size_t n) { return heap_refuses() ? NULL : __libc_memalign(align, n); }

void *realloc(void *block, size_t n) {
    if (heap_refuses()) return NULL;
    if (block != NULL) heap_given++;
    return __libc_realloc(block, n);
}

int posix_memalign(void **block, size_t align, size_t n) {
    if (heap_refuses()) return ENOMEM;
    *block = __libc_memalign(align, n);
    return *block == NULL ? ENOMEM : 0;
}

void free(void *block) {
    if (block != NULL) heap_given++;
    __libc_free(block);
}

#endif
