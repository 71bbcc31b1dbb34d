/* Every call of the table with what each of its parameters is, so that tests can try them all. */
#ifndef CALLS_H
#define CALLS_H
#include "test.h"

union value {
    uint64_t u;
    void *p;
    pr_str s;
};

/* What a parameter is, and with that what must be refused of it. */
enum role {
    END,
    ID,      /* of the kind that `with` names */
    NUMBER,  /* anything */
    FLAGS,   /* bits; `with` those that are known */
    COUNT,   /* of elements; too many are PR_ELIMIT before any is read */
    CAP,     /* of the buffer before it */
    IN,      /* a pointer to what is read */
    ARRAY,   /* to so many as a COUNT says */
    IN_OR_NULL,
    OUT,     /* to what is written on success alone */
    OUT_ARRAY, /* to room for a COUNT of them, which may be NULL if that is 0 */
    OUT_OR_NULL,
    CODES,   /* or NULL; one per element */
    BUFFER,  /* a CAP follows; NULL with 0 is allowed */
    NEED,    /* written also on PR_ENOSPC */
    TEXT,
    BYTES,   /* a number of bytes of the pointer before it */
};

enum { CONTEXT = 1, TRANSACTION, ALLOC, SNAP, WATCH, SUP };

struct param {
    enum role role;
    uint64_t with;     /* see role */
    uint32_t size;     /* of one element, for pointers */
    uint32_t align;
    const char *type;  /* its name in C */
};

enum { PARAMS = 9 };

struct call {
    const char *name;
    enum phase phase;                        /* in which it can succeed */
    int64_t (*go)(const union value *);
    struct param params[PARAMS + 1];
};

extern const struct call calls[];
extern const unsigned n_calls;

/* Arguments with which the call succeeds in a world of its phase, each pointer in guarded memory of the parameter's
 * number. */
void arguments(const struct call *call, const struct world *world, union value *values);
int is_pointer(enum role role);

/* The call must answer `code`, write none of its outputs but `need` and codes, and leave the context as it was. */
void must_refuse(const struct call *call, const struct world *world, const union value *values, int64_t code);
/* Calls `with` for each call, in a world of its own in which it would succeed. */
void for_each_call(void (*with)(const struct call *, const struct world *, const union value *));
#endif
