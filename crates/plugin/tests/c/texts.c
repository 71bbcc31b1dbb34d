/* Texts: every byte, broken UTF-8, none that ends with a NUL, all of them before a page that faults. */
#include "test.h"

/* A text of `n` bytes that ends where the page does. */
static pr_str at_the_end(unsigned slot, const void *bytes, size_t n) {
    pr_str t = {guarded_copy(slot, bytes, n), n};
    return t;
}

/* Each call that takes a text, with the text in its place; what is there is refused with PR_EINVAL, or taken. */
struct place {
    const char *name;
    int32_t (*put)(pr_ctx, pr_str);
    int lookup; /* a well-formed name that nobody has is PR_ENOENT */
    int absent; /* an absent one is taken */
};

static int32_t put_host(pr_ctx ctx, pr_str t) {
    pr_host host = {.size = sizeof host, .host = 9, .name = t};
    int32_t code = api->host_put(ctx, &host, 1);
    if (code == PR_OK) EQ(api->host_remove(ctx, 9, 0), PR_OK);
    return code;
}

static int32_t put_with(pr_ctx ctx, pr_str name, pr_str service, pr_str port, pr_str env) {
    pr_port one = {.name = port, .env = env, .proto = PR_TCP};
    pr_profile profile = {.size = sizeof profile, .name = name, .service = service, .ports = &one, .n_ports = 1, .port_size = sizeof one};
    uint32_t id;
    int32_t code = api->profile_put(ctx, &profile, &id);
    if (code == PR_OK) EQ(api->profile_drop(ctx, id), PR_OK);
    return code;
}

static int32_t put_profile_name(pr_ctx ctx, pr_str t) {
    return put_with(ctx, t, text("db.alice"), text("http"), text(""));
}

static int32_t put_service(pr_ctx ctx, pr_str t) {
    return put_with(ctx, text("db"), t, text("http"), text(""));
}

static int32_t put_port(pr_ctx ctx, pr_str t) {
    return put_with(ctx, text("db"), text("db.alice"), t, text(""));
}

static int32_t put_alias(pr_ctx ctx, pr_str t) {
    return put_with(ctx, text("db"), text("db.alice"), text("http"), t);
}

static int32_t put_prefix(pr_ctx ctx, pr_str t) {
    (void)ctx;
    pr_config config = small_config(0);
    config.env_prefix = t;
    pr_ctx made;
    int32_t code = api->create(&config, &made);
    if (code == PR_OK) EQ(api->destroy(made), PR_OK);
    return code;
}

static int32_t resolve_service(pr_ctx ctx, pr_str t) {
    pr_endpoint endpoint;
    uint32_t need;
    uint64_t revision;
    return api->resolve(ctx, t, text(""), PR_RESOLVE_ALL, &endpoint, 1, &need, &revision);
}

static int32_t resolve_port(pr_ctx ctx, pr_str t) {
    pr_endpoint endpoint;
    uint32_t need;
    uint64_t revision;
    return api->resolve(ctx, text("web.alice"), t, PR_RESOLVE_ALL, &endpoint, 1, &need, &revision);
}

static int32_t open_snapshot(pr_ctx ctx, pr_str t) {
    pr_snap snap;
    uint64_t revision;
    uint32_t count;
    int32_t code = api->snap_open(ctx, t, &snap, &revision, &count);
    if (code == PR_OK) EQ(api->snap_close(snap), PR_OK);
    return code;
}

static int32_t open_watch(pr_ctx ctx, pr_str t) {
    pr_watch watch;
    int32_t fd;
    int32_t code = api->watch_open(ctx, t, 0, &watch, &fd);
    if (code == PR_OK) EQ(api->watch_close(watch), PR_OK);
    return code;
}

static int32_t put_network(pr_ctx ctx, pr_str t) {
    (void)ctx;
    /* In a context of its own: networks stay, and there may be so many. */
    pr_config config = small_config(PR_CFG_NO_RESTORE);
    pr_ctx own = make(&config);
    pr_network network = {.size = sizeof network, .name = t, .ip = {10}, .family = 4, .prefix = 8};
    int32_t code = api->network_put(own, &network, 1);
    EQ(api->destroy(own), PR_OK);
    return code;
}

static int32_t new_machine(pr_ctx ctx, pr_str t) {
    (void)ctx;
    pr_sup sup;
    int32_t code = api->sup_new(t, 1, &sup);
    if (code == PR_OK) EQ(api->sup_free(sup), PR_OK);
    return code;
}

static const struct place places[] = {
    {"host.name", put_host, 0, 0},
    {"profile.name", put_profile_name, 0, 1},
    {"profile.service", put_service, 0, 0},
    {"port.name", put_port, 0, 0},
    {"port.env", put_alias, 0, 1},
    {"config.env_prefix", put_prefix, 0, 1},
    {"resolve's service", resolve_service, 1, 0},
    {"resolve's port", resolve_port, 1, 1},
    {"snap_open's service", open_snapshot, 1, 1},
    {"watch_open's service", open_watch, 0, 1},
    {"network.name", put_network, 0, 0},
    {"sup_new's profile", new_machine, 0, 0},
};
enum { PLACES = sizeof places / sizeof *places };

static void must_be_malformed(const struct place *place, pr_ctx ctx, pr_str t) {
    EQ(place->put(ctx, t), PR_EINVAL);
}

static void broken_utf8_is_refused_everywhere(void) {
    static const struct {
        const char *bytes;
        size_t n;
    } broken[] = {
        {"\x80", 1}, {"\xff", 1}, {"\xfe\xff", 2}, {"a\xc3", 2}, {"\xc0\x80", 2}, {"\xc0\xaf", 2}, {"\xe0\x80\xaf", 3},
        {"\xed\xa0\x80", 3}, {"\xf4\x90\x80\x80", 4}, {"\xf8\x88\x80\x80\x80", 5}, {"ab\xf0\x9f\x98", 5}, {"\0", 1}, {"a\0b", 3},
        {"abc\0", 4}, {"\0abc", 4},
    };
    struct world world = make_world(IDLE);
    pr_stats was = stats_of(world.ctx);
    for (unsigned p = 0; p < PLACES; p++) {
        for (size_t b = 0; b < sizeof broken / sizeof *broken; b++) {
            trying("%s, broken text %zu", places[p].name, b);
            must_be_malformed(&places[p], world.ctx, at_the_end(0, broken[b].bytes, broken[b].n));
        }
    }
    pr_stats is = stats_of(world.ctx);
    CHECK(same_state(&was, &is));
    end_world(&world);
}

/* Alone, at the end and inside: taken or refused as malformed, and never anything else. */
static void every_byte_is_taken_or_refused(void) {
    struct world world = make_world(IDLE);
    for (unsigned p = 0; p < PLACES; p++) {
        /* Where it is slow, every eleventh byte. */
        for (unsigned byte = 0; byte < 256; byte += rounds(20) == 20 ? 1 : 11) {
            const char texts[][4] = {{(char)byte}, {'a', (char)byte}, {(char)byte, 'a'}, {'a', (char)byte, 'b'}, {'a', '.', (char)byte, 'b'}};
            static const size_t lengths[] = {1, 2, 2, 3, 4};
            for (unsigned t = 0; t < 5; t++) {
                trying("%s, byte %u in text %u", places[p].name, byte, t);
                int32_t code = places[p].put(world.ctx, at_the_end(0, texts[t], lengths[t]));
                int plain = byte != 0 && byte < 128;
                CHECK(code == PR_EINVAL || (plain && (code == PR_OK || (code == PR_ENOENT && places[p].lookup))));
            }
        }
    }
    end_world(&world);
}

static void lengths_are_believed_only_as_far_as_a_name_goes(void) {
    static char many[65536];
    memset(many, 'a', sizeof many);
    struct world world = make_world(IDLE);
    for (unsigned p = 0; p < PLACES; p++) {
        static const uint64_t lies[] = {UINT64_MAX, 1ull << 63, 1ull << 32, (1ull << 32) + 3, 1 << 20 | 1};
        int sup = places[p].put == new_machine;
        for (size_t at = 0; at < sizeof lies / sizeof *lies; at++) {
            trying("%s, %#llx bytes", places[p].name, (unsigned long long)lies[at]);
            pr_str t = {guarded_copy(0, "abc", 3), lies[at]};
            /* A profile's text may be long, but not so long. */
            if (!sup || lies[at] > 1 << 24) must_be_malformed(&places[p], world.ctx, t);
        }
        trying("%s, NULL with a length", places[p].name);
        must_be_malformed(&places[p], world.ctx, (pr_str){NULL, 3});
        must_be_malformed(&places[p], world.ctx, (pr_str){NULL, UINT64_MAX});
        trying("%s, absent", places[p].name);
        int32_t code = places[p].put(world.ctx, (pr_str){NULL, 0}), same = places[p].put(world.ctx, (pr_str){"abc", 0});
        EQ(code, same);
        EQ(code, places[p].absent ? PR_OK : PR_EINVAL);
        trying("%s, 256 bytes and more", places[p].name);
        must_be_malformed(&places[p], world.ctx, at_the_end(0, many, 256));
        must_be_malformed(&places[p], world.ctx, at_the_end(0, many, sizeof many));
    }
    end_world(&world);
}

/* Sixteen bytes that need not end with a NUL, nor be UTF-8. */
static void a_listener_may_have_any_name(void) {
    struct world world = make_world(IDLE);
    for (unsigned byte = 0; byte < 256; byte++) {
        trying("a name of bytes %u", byte);
        pr_foreign stranger = {.lo = 25000, .hi = 25000, .proto = PR_TCP, .pid = 7};
        memset(stranger.comm, (int)byte, sizeof stranger.comm);
        EQ(api->report_foreign(world.ctx, 1, byte + 1, guarded_copy(0, &stranger, sizeof stranger), 1), PR_OK);
        uint64_t next;
        EQ(api->pump(world.ctx, 0, &next), PR_OK);
    }
    end_world(&world);
}

/* Addresses: what nobody can connect to, or is no address at all. */
static void an_address_that_is_none_is_refused(void) {
    static const pr_addr bad[] = {
        {.family = 0, .ip = {10, 0, 0, 1}}, {.family = 5, .ip = {10, 0, 0, 1}}, {.family = 0xffffffff, .ip = {10, 0, 0, 1}},
        {.family = 4, .ip = {0}}, {.family = 6, .ip = {0}}, {.family = 4, .ip = {224, 0, 0, 1}}, {.family = 6, .ip = {0xff, 2}},
        {.family = 4, .ip = {10, 0, 0, 1, 1}}, {.family = 4, .ip = {[0] = 10, [15] = 1}}, {.family = 4, .ip = {10, 0, 0, 1}, .scope = 4},
        {.family = 4, .ip = {10, 0, 0, 1}, .scope = 0xffffffff},
    };
    struct world world = make_world(IDLE);
    pr_stats was = stats_of(world.ctx);
    for (size_t at = 0; at < sizeof bad / sizeof *bad; at++) {
        trying("address %zu", at);
        pr_addr two[2] = {{.family = 4, .ip = {10, 0, 0, 2}}, bad[at]};
        EQ(api->report_addr(world.ctx, 0, 50, two, 2), PR_EINVAL);
    }
    pr_stats is = stats_of(world.ctx);
    CHECK(same_state(&was, &is));
    /* None of them used up the number of the report. */
    EQ(api->report_addr(world.ctx, 0, 2, NULL, 0), PR_OK);
    EQ(api->report_addr(world.ctx, 0, 2, NULL, 0), PR_ESTALE);
    EQ(api->report_addr(world.ctx, 0, UINT64_MAX, NULL, 0), PR_OK);
    EQ(api->report_addr(world.ctx, 0, UINT64_MAX, NULL, 0), PR_ESTALE);
    EQ(api->report_addr(world.ctx, 0, 0, NULL, 0), PR_ESTALE);
    end_world(&world);
}

/* Numbers of lists that say what is meant: one beyond the last of each is refused. */
static void a_number_beyond_its_list_is_refused(void) {
    static const uint32_t beyond[] = {5, 6, 7, 100, 0x80000000, 0xffffffff};
    struct world world = make_world(IDLE);
    pr_stats was = stats_of(world.ctx);
    for (size_t at = 0; at < sizeof beyond / sizeof *beyond; at++) {
        const uint32_t number = beyond[at];
        trying("%u", number);
        EQ(api->host_state(world.ctx, 0, number), PR_EINVAL);
        pr_host host = {.size = sizeof host, .host = 9, .state = number, .name = text("n9")};
        EQ(api->host_put(world.ctx, &host, 1), PR_EINVAL);
        pr_ready ready = {.id = world.held, .seq = 9, .run = 9, .state = number};
        EQ(api->report_ready(world.ctx, &ready, 1, NULL), PR_EINVAL);
        EQ(api->report_conflict(world.ctx, world.held, world.number, number, 0), PR_EINVAL);
        pr_foreign stranger = {.lo = 30000, .hi = 30000, .proto = number};
        EQ(api->report_foreign(world.ctx, 0, 9, &stranger, 1), PR_EINVAL);
        uint32_t done;
        EQ(api->release_job(world.ctx, 1, PR_ANY, number, 0, &done), PR_EINVAL);
    }
    EQ(api->host_state(world.ctx, 0, 4), PR_EINVAL);
    EQ(api->report_conflict(world.ctx, world.held, world.number, 0, 0), PR_EINVAL);
    EQ(api->report_conflict(world.ctx, world.held, world.number, PR_UDP, 0), PR_ENOENT);
    EQ(api->report_conflict(world.ctx, world.held, 0, PR_TCP, 0), PR_ENOENT);
    EQ(api->report_conflict(world.ctx, world.held, (uint16_t)(world.number + 1), PR_TCP, 0), PR_ENOENT);
    pr_stats is = stats_of(world.ctx);
    CHECK(same_state(&was, &is));
    end_world(&world);
}

const struct test texts_tests[] = {
    {"broken_utf8_is_refused_everywhere", broken_utf8_is_refused_everywhere},
    {"every_byte_is_taken_or_refused", every_byte_is_taken_or_refused},
    {"lengths_are_believed_only_as_far_as_a_name_goes", lengths_are_believed_only_as_far_as_a_name_goes},
    {"a_listener_may_have_any_name", a_listener_may_have_any_name},
    {"an_address_that_is_none_is_refused", an_address_that_is_none_is_refused},
    {"a_number_beyond_its_list_is_refused", a_number_beyond_its_list_is_refused},
    {NULL, NULL},
};
