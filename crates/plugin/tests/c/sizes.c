/* Structs that say their size: of an older host, of a newer one, and of none that there is. */
#include "calls.h"

/* Inputs that begin with their size. */
static int is_sized(const struct param *param) {
    static const char *const sized[] = {"pr_config", "pr_host", "pr_network", "pr_profile", "pr_sup_event"};
    if (param->role != IN && param->role != ARRAY) return 0;
    for (size_t at = 0; at < sizeof sized / sizeof *sized; at++) {
        if (strcmp(param->type, sized[at]) == 0) return 1;
    }
    return 0;
}

/* abi 7 */
static void size_one(const struct call *call, const struct world *world, const union value *values) {
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        if (!is_sized(&call->params[at])) continue;
        const uint32_t known = call->params[at].size;
        const uint32_t sizes[] = {0, 1, 3, 4, 7, 8, known - 8, known - 1, known + 1, known + 4, 4097, 4104, 65536, 0x80000000, 0xffffffff};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            trying("%s, a %s of size %u", call->name, call->params[at].type, sizes[s]);
            memcpy(values[at].p, &sizes[s], 4);
            must_refuse(call, world, probe, PR_EINVAL);
        }
    }
}

static void a_size_that_cannot_be_is_refused(void) {
    for_each_call(size_one);
}

/* abi 5: that the structs of minor 0 are enough is shown by all tests here, for these are what the header has now, and
 * each stands before a page that faults. abi 6: */
static void longer_structs_are_read_if_their_tail_is_zero(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        for (unsigned at = 0; it->params[at].role != END; at++) {
            if (!is_sized(&it->params[at])) continue;
            const uint32_t known = it->params[at].size;
            for (uint32_t size = known + 8; size <= 4096; size += size < known + 32 ? 8 : 1024 - (size - known) % 8) {
                for (int tail = 0; tail < 3; tail++) {
                    trying("%s, a %s of size %u, tail %d", it->name, it->params[at].type, size, tail);
                    struct world world = make_world(it->phase);
                    union value values[PARAMS + 1];
                    arguments(it, &world, values);
                    unsigned char *longer = guarded(14, size);
                    memset(longer, 0, size);
                    memcpy(longer, values[at].p, known);
                    memcpy(longer, &size, 4);
                    /* Its first unknown byte, or its very last. */
                    if (tail > 0) longer[tail == 1 ? known : size - 1] = 0x80;
                    values[at].p = longer;
                    if (tail > 0) {
                        must_refuse(it, &world, values, PR_E2BIG);
                    } else {
                        int64_t code = it->go(values);
                        CHECK(code == PR_OK);
                        if (strcmp(it->name, "create") == 0) EQ(api->destroy(*(pr_ctx *)values[1].p), PR_OK);
                    }
                    end_world(&world);
                }
            }
        }
    }
}

/* abi 6: the stride is the first element's size, which all must have. */
static void a_strided_array_is_walked_by_its_own_size(void) {
    enum { N = 5 };
    for (uint32_t size = sizeof(pr_host); size <= sizeof(pr_host) + 24; size += 8) {
        trying("hosts of %u bytes", size);
        struct world world = make_world(IDLE);
        unsigned char *all = guarded(14, (size_t)N * size);
        char names[N][8];
        memset(all, 0, (size_t)N * size);
        for (uint32_t at = 0; at < N; at++) {
            snprintf(names[at], sizeof names[at], "s%u", at);
            pr_host host = {.size = size, .host = 10 + at, .name = text(names[at])};
            memcpy(all + at * size, &host, sizeof host);
        }
        pr_host *hosts = (pr_host *)(void *)all;
        for (uint32_t at = 1; at < N; at++) {
            uint32_t other = at % 2 == 0 ? size + 8 : sizeof(pr_host) - 8;
            memcpy(all + at * size, &other, 4);
            EQ(api->host_put(world.ctx, hosts, N), PR_EINVAL);
            memcpy(all + at * size, &size, 4);
        }
        if (size > sizeof(pr_host)) {
            all[N * size - 1] = 1;
            EQ(api->host_put(world.ctx, hosts, N), PR_E2BIG);
            all[N * size - 1] = 0;
        }
        EQ(stats_of(world.ctx).hosts, 2);
        EQ(api->host_put(world.ctx, hosts, N), PR_OK);
        EQ(stats_of(world.ctx).hosts, 2 + N);
        end_world(&world);
    }
}

/* pr_port says no size; its profile does, for all of them. */
static void ports_are_as_long_as_their_profile_says(void) {
    enum { N = 3 };
    const uint32_t known = sizeof(pr_port);
    static const char *const names[N] = {"a", "b", "c"};
    struct world world = make_world(IDLE);
    pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .n_ports = N};
    uint32_t id = 77;
    for (uint32_t size = known; size <= known + 24; size += 8) {
        trying("ports of %u bytes", size);
        unsigned char *all = guarded(14, (size_t)N * size);
        memset(all, 0, (size_t)N * size);
        for (uint32_t at = 0; at < N; at++) {
            pr_port port = {.name = text(names[at]), .proto = PR_TCP};
            memcpy(all + at * size, &port, sizeof port);
        }
        profile.ports = (pr_port *)(void *)all;
        profile.port_size = size;
        if (size > known) {
            all[N * size - 1] = 1;
            EQ(api->profile_put(world.ctx, &profile, &id), PR_E2BIG);
            all[N * size - 1] = 0;
        }
        EQ(api->profile_put(world.ctx, &profile, &id), PR_OK);
    }
    const uint32_t wrong[] = {0, 3, 8, known - 8, known - 1, known + 1, known + 4, 4104, 0xffffffff};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        trying("ports of %u bytes", wrong[at]);
        profile.port_size = wrong[at];
        EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    }
    profile.port_size = known;
    const uint32_t many[] = {257, 0x7fffffff, 0xffffffff};
    for (size_t at = 0; at < sizeof many / sizeof *many; at++) {
        trying("%u ports", many[at]);
        profile.n_ports = many[at];
        EQ(api->profile_put(world.ctx, &profile, &id), PR_ELIMIT);
    }
    end_world(&world);
}

/* abi 5: an older host's pr_stats has fewer counters; a newer one's has more. */
static void stats_are_filled_as_far_as_both_know_them(void) {
    struct world world = make_world(IDLE);
    for (uint32_t size = 8; size <= 4096; size += 8) {
        trying("stats of %u bytes", size);
        unsigned char *at = guarded(14, size);
        memset(at, 0, size);
        memcpy(at, &size, 4);
        if (size > sizeof(pr_stats)) {
            at[size - 1] = 1;
            EQ(api->stats(world.ctx, (void *)at), PR_E2BIG);
            at[size - 1] = 0;
        }
        EQ(api->stats(world.ctx, (void *)at), PR_OK);
        uint32_t ours;
        memcpy(&ours, at, 4);
        EQ(ours, sizeof(pr_stats));
        uint64_t hosts = 2;
        if (size >= 16) CHECK(memcmp(at + offsetof(pr_stats, hosts), &hosts, sizeof hosts) == 0);
    }
    static const uint32_t wrong[] = {0, 3, 4, 7, 9, 12, 20, 4097, 4104, 0xffffffff};
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        pr_stats stats = {.size = wrong[at]};
        EQ(api->stats(world.ctx, guarded_copy(14, &stats, sizeof stats)), PR_EINVAL);
    }
    end_world(&world);
}

/* The same of the next effect, of which there is none yet: its room is looked at all the same. */
static void room_for_an_effect_is_checked_before_there_is_one(void) {
    static const uint32_t wrong[] = {0, 3, 4, 7, 9, 12, 20, 4097, 4104, 0xffffffff};
    struct world world = make_world(IDLE);
    for (size_t at = 0; at < sizeof wrong / sizeof *wrong; at++) {
        trying("an effect of %u bytes", wrong[at]);
        pr_sup_effect effect = {.size = wrong[at]};
        EQ(api->sup_next_effect(world.sup, guarded_copy(14, &effect, sizeof effect)), PR_EINVAL);
    }
    for (uint32_t size = sizeof(pr_sup_effect); size <= 4096; size += 8) {
        trying("an effect of %u bytes", size);
        unsigned char *at = guarded(14, size);
        memset(at, 0, size);
        memcpy(at, &size, 4);
        EQ(api->sup_next_effect(world.sup, (void *)at), 0);
        if (size == sizeof(pr_sup_effect)) continue;
        at[size - 1] = 1;
        EQ(api->sup_next_effect(world.sup, (void *)at), PR_E2BIG);
    }
    end_world(&world);
}

/* What structs point to: NULL with a length, off the alignment, and more than any limit, before a page that faults. */
static void what_a_struct_points_to_is_checked_as_its_arguments_are(void) {
    struct world world = make_world(IDLE);
    const pr_range range = {20000, 20010};
    const pr_range *good = guarded_copy(1, &range, sizeof range), *off = (const void *)((uintptr_t)good - 1);
    static const uint32_t many[] = {1025, 0x7fffffff, 0xffffffff};
    for (int list = 0; list < 3; list++) {
        pr_host host = {.size = sizeof host, .host = 5, .name = text("n5")};
        const pr_range **at = list == 0 ? &host.dynamic : list == 1 ? &host.fixed : &host.reserved;
        uint32_t *n = list == 0 ? &host.n_dynamic : list == 1 ? &host.n_fixed : &host.n_reserved;
        trying("list %d of a host", list);
        *n = 1;
        EQ(api->host_put(world.ctx, &host, 1), PR_EINVAL);
        *at = off;
        EQ(api->host_put(world.ctx, &host, 1), PR_EINVAL);
        *at = good;
        for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
            *n = many[m];
            EQ(api->host_put(world.ctx, &host, 1), PR_ELIMIT);
        }
        *n = 1;
        EQ(api->host_put(world.ctx, &host, 1), PR_OK);
        EQ(api->host_remove(world.ctx, 5, 0), PR_OK);
    }
    static const pr_range bad[] = {{0, 5}, {5, 0}, {0, 0}, {6, 5}, {65535, 1}};
    for (size_t at = 0; at < sizeof bad / sizeof *bad; at++) {
        trying("range %u to %u", bad[at].lo, bad[at].hi);
        pr_host host = {.size = sizeof host, .host = 5, .name = text("n5"), .dynamic = &bad[at], .n_dynamic = 1};
        EQ(api->host_put(world.ctx, &host, 1), PR_EINVAL);
        pr_port port = {.name = text("http"), .proto = PR_TCP, .within = &bad[at], .n_within = 1};
        pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .ports = &port, .n_ports = 1, .port_size = sizeof port};
        uint32_t id;
        EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    }
    pr_port port = {.name = text("http"), .proto = PR_TCP};
    pr_profile profile = {.size = sizeof profile, .service = text("db.alice"), .n_ports = 1, .port_size = sizeof port};
    uint32_t id = 77;
    EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    profile.ports = (const void *)((uintptr_t)guarded_copy(2, &port, sizeof port) - 4);
    EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    profile.ports = &port;
    port.n_within = 1;
    EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    port.within = off;
    EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    port.within = good;
    for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
        port.n_within = many[m];
        EQ(api->profile_put(world.ctx, &profile, &id), PR_ELIMIT);
    }
    static const uint32_t protos[] = {0, 4, 6, 17, 0x80000001, 0xffffffff};
    port.n_within = 1;
    for (size_t at = 0; at < sizeof protos / sizeof *protos; at++) {
        port.proto = protos[at];
        EQ(api->profile_put(world.ctx, &profile, &id), PR_EINVAL);
    }
    EQ(id, 77);
    port.proto = PR_TCP_UDP;
    EQ(api->profile_put(world.ctx, &profile, &id), PR_OK);
    end_world(&world);
}

const struct test sizes_tests[] = {
    {"a_size_that_cannot_be_is_refused", a_size_that_cannot_be_is_refused},
    {"longer_structs_are_read_if_their_tail_is_zero", longer_structs_are_read_if_their_tail_is_zero},
    {"a_strided_array_is_walked_by_its_own_size", a_strided_array_is_walked_by_its_own_size},
    {"ports_are_as_long_as_their_profile_says", ports_are_as_long_as_their_profile_says},
    {"stats_are_filled_as_far_as_both_know_them", stats_are_filled_as_far_as_both_know_them},
    {"room_for_an_effect_is_checked_before_there_is_one", room_for_an_effect_is_checked_before_there_is_one},
    {"what_a_struct_points_to_is_checked_as_its_arguments_are", what_a_struct_points_to_is_checked_as_its_arguments_are},
    {NULL, NULL},
};
