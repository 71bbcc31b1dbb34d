/* Machines of supervision under a caller that says anything, in any order, and hands over any bytes. */
#include "test.h"

static const char *const probed =
    "{\"name\":\"web\",\"command\":[\"/bin/true\"],\"ports\":{\"http\":\"any\"},"
    "\"startup\":{\"tcp\":{}},\"readiness\":{\"tcp\":{}},\"liveness\":{\"listening\":true}}";

static pr_sup machine(const char *profile) {
    pr_sup sup = 0;
    EQ(api->sup_new(text(profile), 1, &sup), PR_OK);
    return sup;
}

/* What a machine would have us do is one of what the header lists, and so is each member of it. */
static uint32_t take_all(pr_sup sup) {
    pr_sup_effect effect = {.size = sizeof effect};
    uint32_t taken = 0;
    int32_t more;
    while ((more = api->sup_next_effect(sup, &effect)) == 1 && taken < 1000) {
        taken++;
        CHECK(effect.kind >= PR_SF_SPAWN && effect.kind <= PR_SF_REPORT);
        CHECK(effect.probe_kind <= PR_SK_READINESS && effect.report <= PR_SR_PORT_CONFLICT && effect.reason <= PR_SW_STALE_RECORD);
        CHECK(effect.flags < 128);
        effect.size = sizeof effect;
    }
    EQ(more, 0);
    return taken;
}

/* A value at an edge, or of any size. */
static uint64_t any(struct dice *d) {
    static const uint64_t edges[] = {0, 1, 2, 9, 127, 128, 255, 256, 4095, 4096, 65535, 65536, 1u << 31, UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX - 1, UINT64_MAX};
    return below(d, 3) > 0 ? edges[below(d, sizeof edges / sizeof *edges)] : roll(d) >> below(d, 64);
}

static uint32_t small_or_any(struct dice *d, uint32_t end) {
    return below(d, 8) > 0 ? below(d, end) : (uint32_t)any(d);
}

static void a_machine_takes_any_event_at_any_time(void) {
    struct dice d = {7};
    uint32_t events = 0, done = 0;
    const uint32_t most = rounds(getenv("PORTREEVE_LONG") != NULL ? 1000000 : 20000);
    const char *profile = probed;
    pr_sup sup = machine(profile);
    uint64_t now = 0;
    while (events < most) {
        pr_sup_event event = {.size = sizeof event, .kind = small_or_any(&d, 13), .run = small_or_any(&d, 6), .probe_kind = small_or_any(&d, 5),
                              .probe = small_or_any(&d, 6), .result = small_or_any(&d, 6), .code = (int32_t)small_or_any(&d, 130),
                              .flags = below(&d, 2) ? 0 : small_or_any(&d, 128), .ms = any(&d)};
        /* Mostly as time goes; sometimes back, or at the end of all time. */
        now = below(&d, 20) > 0 ? now + below(&d, 20000) : any(&d);
        if (below(&d, 200) > 0 && now > 1ull << 62) now = below(&d, 1000000);
        trying("event %u: kind %u, run %u, probe %u %u, result %u, code %d, flags %u, ms %llu at %llu", events, event.kind, event.run, event.probe_kind,
               event.probe, event.result, event.code, event.flags, (unsigned long long)event.ms, (unsigned long long)now);
        int32_t code = api->sup_event(sup, now, &event);
        CHECK(code == PR_OK || code == PR_EINVAL || code == PR_EAGAIN);
        events++;
        done += code == PR_OK;
        uint64_t due;
        EQ(api->sup_next_deadline(sup, &due), PR_OK);
        if (below(&d, 3) == 0) {
            code = api->sup_deadline(sup, below(&d, 2) ? due : now);
            CHECK(code == PR_OK || code == PR_EAGAIN);
        }
        /* Effects that nobody takes are refused at some point, not kept without end. */
        if (code == PR_EAGAIN || below(&d, 4) == 0) take_all(sup);
        /* Its state is loaded wherever it stands, and says the same again. */
        if (below(&d, 64) == 0) {
            uint32_t need = 0, again = 0;
            EQ(api->sup_save(sup, NULL, 0, &need), PR_ENOSPC);
            CHECK(need > 0 && need <= 1 << 20);
            char *state = malloc(need), *same = malloc(need);
            if (state == NULL || same == NULL) abort();
            EQ(api->sup_save(sup, state, need, &again), PR_OK);
            pr_sup next = 0;
            EQ(api->sup_load(text(profile), state, need, &next), PR_OK);
            EQ(api->sup_save(next, same, need, &again), PR_OK);
            CHECK(again == need && memcmp(state, same, need) == 0);
            free(state);
            free(same);
            if (next != 0) EQ(api->sup_free(next), PR_OK);
        }
        /* A machine that ended says no more: begin with a fresh one now and then. */
        if (below(&d, 50) == 0) {
            EQ(api->sup_free(sup), PR_OK);
            profile = below(&d, 2) ? probed : sup_profile;
            sup = machine(profile);
            now = below(&d, 1000);
            if (below(&d, 2)) {
                pr_sup_event start = {.size = sizeof start, .kind = PR_SE_START};
                EQ(api->sup_event(sup, now, &start), PR_OK);
            }
        }
    }
    CHECK(done > events / 20);
    EQ(api->sup_free(sup), PR_OK);
}

/* Each bit of a state turned, each length, and any bytes: refused, or a machine that works. */
static void a_damaged_state_is_refused_or_works(void) {
    pr_sup sup = machine(probed);
    pr_sup_event start = {.size = sizeof start, .kind = PR_SE_START};
    EQ(api->sup_event(sup, 1000, &start), PR_OK);
    static char state[8192], bad[8192];
    uint32_t need, again;
    EQ(api->sup_save(sup, state, sizeof state, &need), PR_OK);
    uint32_t step = rounds(20) == 20 ? 1 : 13, taken = 0;
    for (uint32_t bit = 0; bit < need * 8; bit += step) {
        trying("bit %u turned", bit);
        memcpy(bad, state, need);
        bad[bit / 8] = (char)(bad[bit / 8] ^ 1 << bit % 8);
        pr_sup loaded = 77;
        int32_t code = api->sup_load(text(probed), guarded_copy(0, bad, need), need, &loaded);
        CHECK(code == PR_OK || code == PR_EINVAL || code == PR_EVERSION || code == PR_ESTATE);
        if (code != PR_OK) {
            EQ(loaded, 77);
            continue;
        }
        taken++;
        pr_sup_event adopt = {.size = sizeof adopt, .kind = PR_SE_ADOPT};
        api->sup_event(loaded, UINT64_MAX - 1, &adopt);
        take_all(loaded);
        api->sup_deadline(loaded, UINT64_MAX);
        take_all(loaded);
        EQ(api->sup_free(loaded), PR_OK);
    }
    for (uint32_t n = 0; n < need; n += step) {
        pr_sup loaded = 77;
        trying("%u bytes of %u", n, need);
        EQ(api->sup_load(text(probed), guarded_copy(0, state, n), n, &loaded), PR_EINVAL);
        EQ(loaded, 77);
    }
    static const uint64_t huge[] = {(4 << 20) + 1, UINT32_MAX, 1ull << 32, 1ull << 63, UINT64_MAX};
    for (unsigned at = 0; at < sizeof huge / sizeof *huge; at++) {
        pr_sup loaded = 77;
        trying("%llu bytes", (unsigned long long)huge[at]);
        EQ(api->sup_load(text(probed), guarded_copy(0, state, need), huge[at], &loaded), PR_ELIMIT);
    }
    struct dice d = {3};
    for (uint32_t round = 0; round < rounds(2000); round++) {
        uint32_t n = below(&d, 300);
        for (uint32_t at = 0; at < n; at++) bad[at] = (char)roll(&d);
        if (below(&d, 2)) memcpy(bad, state, n < 16 ? n : 16);
        pr_sup loaded = 77;
        trying("%u bytes of any kind", n);
        int32_t code = api->sup_load(text(probed), guarded_copy(0, bad, n), n, &loaded);
        CHECK(code == PR_EINVAL || code == PR_EVERSION || code == PR_ESTATE);
    }
    /* A state of other rules is not taken for one of these. */
    pr_sup plain = machine(sup_profile), loaded = 77;
    EQ(api->sup_save(plain, bad, sizeof bad, &again), PR_OK);
    EQ(api->sup_load(text(probed), bad, again, &loaded), PR_ESTATE);
    EQ(api->sup_load(text(sup_profile), state, need, &loaded), PR_ESTATE);
    EQ(loaded, 77);
    EQ(api->sup_free(plain), PR_OK);
    EQ(api->sup_free(sup), PR_OK);
    (void)taken;
}

static void a_profile_of_any_kind_is_refused_in_words(void) {
    static const char *const bad[] = {"", " ", "{}", "[]", "null", "1", "\"x\"", "{", "{\"name\":}", "{\"name\":\"web\"}", "{\"name\":\"web\",\"command\":[]}",
                                      "{\"name\":\"web\",\"command\":[\"/bin/true\"],\"unknown\":1}",
                                      "{\"name\":\"web\",\"name\":\"web\",\"command\":[\"/bin/true\"]}",
                                      "{\"name\":\"web\",\"command\":[\"/bin/true\"]} x", "{\"name\":1e999,\"command\":[\"/bin/true\"]}",
                                      "{\"name\":\"\\ud800\",\"command\":[\"/bin/true\"]}"};
    for (unsigned at = 0; at < sizeof bad / sizeof *bad; at++) {
        trying("%s", bad[at]);
        pr_sup sup = 77;
        pr_str it = {strlen(bad[at]) == 0 ? NULL : guarded_copy(0, bad[at], strlen(bad[at])), strlen(bad[at])};
        EQ(api->sup_new(it, 1, &sup), PR_EINVAL);
        EQ(sup, 77);
        CHECK(strlen(words()) > 10);
    }
    /* Lists in lists, deeper than any stack is. */
    enum { DEEP = 60000 };
    char *deep = guarded(0, DEEP);
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t at = 0; at < DEEP; at++) deep[at] = kind == 0 ? '[' : kind == 1 ? "{\"a\":"[at % 5] : '"';
        pr_sup sup = 77;
        pr_str it = {deep, DEEP};
        trying("a deep one of kind %d", kind);
        EQ(api->sup_new(it, 1, &sup), PR_EINVAL);
    }
    /* Cut off anywhere. */
    for (size_t n = 0; n < strlen(probed); n++) {
        pr_str it = {guarded_copy(0, probed, n), n};
        pr_sup sup = 77;
        trying("%zu bytes of a good one", n);
        EQ(api->sup_new(it, 1, &sup), PR_EINVAL);
    }
    static const uint64_t huge[] = {1ull << 32, 1ull << 40, 1ull << 63, UINT64_MAX};
    for (unsigned at = 0; at < sizeof huge / sizeof *huge; at++) {
        pr_str it = {guarded_copy(0, probed, strlen(probed)), huge[at]};
        pr_sup sup = 77;
        trying("%llu bytes", (unsigned long long)huge[at]);
        int32_t code = api->sup_new(it, 1, &sup);
        CHECK(code == PR_EINVAL || code == PR_ELIMIT);
        code = api->sup_load(it, probed, 1, &sup);
        CHECK(code == PR_EINVAL || code == PR_ELIMIT);
    }
}

static void so_many_machines_and_no_more(void) {
    enum { MANY = 65536 };
    static pr_sup all[MANY];
    const uint32_t most = rounds(20) == 20 ? MANY : 0;
    if (most == 0 || getenv("PORTREEVE_LONG") == NULL) return;
    for (uint32_t at = 0; at < most; at++) all[at] = machine(sup_profile);
    pr_sup more = 77;
    EQ(api->sup_new(text(sup_profile), 1, &more), PR_ELIMIT);
    EQ(more, 77);
    for (uint32_t at = 0; at < most; at++) EQ(api->sup_free(all[at]), PR_OK);
}

const struct test machines_tests[] = {
    {"a_machine_takes_any_event_at_any_time", a_machine_takes_any_event_at_any_time},
    {"a_damaged_state_is_refused_or_works", a_damaged_state_is_refused_or_works},
    {"a_profile_of_any_kind_is_refused_in_words", a_profile_of_any_kind_is_refused_in_words},
    {"so_many_machines_and_no_more", so_many_machines_and_no_more},
    {NULL, NULL},
};
