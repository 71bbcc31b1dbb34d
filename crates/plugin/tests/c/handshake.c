/* The one symbol: who gets the table, and who does not. */
#include <pthread.h>
#include "test.h"

static const pr_api *const untouched = (const pr_api *)0x1234;

/* What pr_get_api answers to this; the table must stay where it was on any refusal. */
static int32_t ask(const pr_hostinfo *host, uint32_t *speaks) {
    const pr_api **place = guarded(1, sizeof *place);
    *place = untouched;
    int32_t code = get_api(host, place, speaks);
    CHECK(code == PR_OK ? *place == api : *place == untouched);
    return code;
}

/* abi 1 */
static void the_table_is_for_those_who_speak_our_number(void) {
    static const uint32_t others[] = {0, 2, 3, 0x80000000, 0xffffffff};
    pr_hostinfo ours = {sizeof ours, PR_ABI, 0};
    pr_hostinfo *host = guarded_copy(0, &ours, sizeof ours);
    uint32_t *speaks = guarded(2, sizeof *speaks);
    *speaks = 77;
    EQ(ask(host, speaks), PR_OK);
    EQ(*speaks, 77);
    EQ(ask(host, NULL), PR_OK);
    for (size_t at = 0; at < sizeof others / sizeof *others; at++) {
        host->abi = others[at];
        *speaks = 77;
        EQ(ask(host, speaks), PR_EVERSION);
        EQ(*speaks, PR_ABI);
        EQ(ask(host, NULL), PR_EVERSION);
    }
    host->abi = PR_ABI;
    for (unsigned bit = 0; bit < 64; bit++) {
        host->want_caps = 1ull << bit;
        EQ(ask(host, speaks), api->caps >> bit & 1 ? PR_OK : PR_EVERSION);
    }
}

/* abi 1, 7 */
static void a_malformed_greeting_is_refused(void) {
    static const uint32_t sizes[] = {0, 3, 8, 12, 15, 17, 20, 4097, 4104, 0x80000000, 0xffffffff};
    pr_hostinfo ours = {sizeof ours, PR_ABI, 0};
    pr_hostinfo *host = guarded_copy(0, &ours, sizeof ours);
    const pr_api *place = untouched;
    uint32_t speaks = 77;
    EQ(get_api(NULL, &place, &speaks), PR_EINVAL);
    EQ(get_api(host, NULL, &speaks), PR_EINVAL);
    EQ(get_api(NULL, NULL, NULL), PR_EINVAL);
    EQ(get_api((void *)((uintptr_t)host - 4), &place, &speaks), PR_EINVAL);
    EQ(get_api(host, (void *)((uintptr_t)guarded(1, 16) + 4), &speaks), PR_EINVAL);
    EQ(get_api(host, &place, (void *)((uintptr_t)guarded(2, 8) + 2)), PR_EINVAL);
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        host->size = sizes[at];
        EQ(get_api(host, &place, &speaks), PR_EINVAL);
    }
    CHECK(place == untouched && speaks == 77);
}

/* abi 6 */
static void a_newer_greeting_is_understood_if_its_tail_says_nothing(void) {
    for (uint32_t size = 24; size <= 4096; size += 8) {
        trying("a greeting of %u bytes", size);
        unsigned char *at = guarded(0, size);
        memset(at, 0, size);
        pr_hostinfo ours = {size, PR_ABI, 0};
        memcpy(at, &ours, sizeof ours);
        EQ(ask((void *)at, NULL), PR_OK);
        at[size - 1] = 1;
        EQ(ask((void *)at, NULL), PR_E2BIG);
    }
}

static void *ask_often(void *answer) {
    pr_hostinfo ours = {sizeof ours, PR_ABI, 0};
    const pr_api *place = NULL;
    for (int n = 0; n < 1000; n++) {
        if (get_api(&ours, &place, NULL) != PR_OK || place != api) return NULL;
    }
    return answer;
}

/* abi 2 */
static void the_table_is_one_for_every_thread(void) {
    pthread_t threads[8];
    int here = 0;
    for (int t = 0; t < 8; t++) EQ(pthread_create(&threads[t], NULL, ask_often, &here), 0);
    for (int t = 0; t < 8; t++) {
        void *answer;
        EQ(pthread_join(threads[t], &answer), 0);
        CHECK(answer == &here);
    }
    EQ(api->abi, PR_ABI);
    EQ(api->size, sizeof(pr_api));
    const void *const *slots = (const void *const *)(const void *)&api->create;
    for (size_t at = 0; at < (sizeof(pr_api) - offsetof(pr_api, create)) / sizeof *slots; at++) CHECK(slots[at] != NULL);
}

static void every_number_has_words(void) {
    struct dice d = {1};
    for (int n = 0; n < 10000; n++) {
        int32_t number = n < 200 ? n - 100 : (int32_t)roll(&d);
        const char *code = api->strerror_(number), *reason = api->reason_((uint32_t)number);
        CHECK(code != NULL && *code != 0 && code == api->strerror_(number));
        CHECK(reason != NULL && *reason != 0 && reason == api->reason_((uint32_t)number));
    }
    for (int32_t code = PR_ENOENT; code < 0; code++) CHECK(strcmp(api->strerror_(code), api->strerror_(code - 1)) != 0);
}

const struct test handshake_tests[] = {
    {"the_table_is_for_those_who_speak_our_number", the_table_is_for_those_who_speak_our_number},
    {"a_malformed_greeting_is_refused", a_malformed_greeting_is_refused},
    {"a_newer_greeting_is_understood_if_its_tail_says_nothing", a_newer_greeting_is_understood_if_its_tail_says_nothing},
    {"the_table_is_one_for_every_thread", the_table_is_one_for_every_thread},
    {"every_number_has_words", every_number_has_words},
    {NULL, NULL},
};
