/* A ledger of who holds what, kept beside a context through any course of a scheduler's life: no number twice, nothing taken by what
 * was refused or taken back, and what is said to fit fits. */
#include "test.h"

enum { HOSTS = 3, PROFILES = 6, MOST_HELD = 48, NUMBERS = 8 };

struct line {
    pr_alloc id;
    uint64_t job;
    uint32_t host, profile, n;
    uint16_t numbers[NUMBERS];
};

struct ledger {
    struct dice d;
    pr_ctx ctx;
    uint32_t profiles[PROFILES];
    struct line lines[MOST_HELD];
    uint32_t n;
    uint64_t now, job, seq;
    uint32_t where[HOSTS]; /* at which index a host of this name stands */
};

/* How many numbers a profile has, and on which sides each is. */
static const uint32_t sizes[PROFILES] = {1, 2, 4, 1, 1, 8};
static const uint32_t sides[PROFILES] = {PR_TCP, PR_UDP, PR_TCP, PR_TCP, PR_TCP_UDP, PR_TCP_UDP};

static void put_all(struct ledger *it) {
    static const char *const names[HOSTS] = {"n0", "n1", "n2"};
    static const pr_range pool = {20000, 20023}, fixed = {8080, 8081};
    pr_host hosts[HOSTS];
    for (int at = 0; at < HOSTS; at++) {
        hosts[at] = (pr_host){.size = sizeof *hosts, .host = it->where[at], .name = text(names[at]), .dynamic = &pool, .n_dynamic = 1, .fixed = &fixed, .n_fixed = 1,
                              .flags = (uint32_t)at, .cool_ms = 50};
    }
    EQ(api->host_put(it->ctx, hosts, HOSTS), PR_OK);
}

/* Every number of every host, as a reader of holders sees it. */
static uint32_t picture(struct ledger *it, pr_held *all, uint32_t cap) {
    pr_txn txn;
    uint32_t sum = 0;
    EQ(api->txn_begin(it->ctx, PR_TXN_WHATIF, it->now, &txn), PR_OK);
    for (uint32_t host = 0; host < HOSTS; host++) {
        uint32_t cursor = 0, n;
        do {
            n = 0;
            EQ(api->holders(txn, host, &cursor, all + sum, cap - sum, &n), PR_OK);
            sum += n;
        } while (n > 0 && sum < cap);
    }
    EQ(api->abort_(txn), PR_OK);
    return sum;
}

static void no_number_is_held_twice(const struct ledger *it) {
    static unsigned char held[HOSTS][2][65536];
    for (int turn = 0; turn < 2; turn++) {
        for (uint32_t at = 0; at < it->n; at++) {
            const struct line *line = &it->lines[at];
            const uint32_t side = sides[line->profile];
            for (uint32_t p = 0; p < line->n; p++) {
                for (uint32_t s = 0; s < 2; s++) {
                    if (!(side >> s & 1)) continue;
                    /* The second turn wipes what the first one wrote. */
                    if (turn == 0) CHECK(!held[line->host][s][line->numbers[p]]);
                    held[line->host][s][line->numbers[p]] = turn == 0;
                }
            }
        }
    }
}

static void each_line_is_as_it_says(struct ledger *it) {
    for (uint32_t at = 0; at < it->n; at++) {
        const struct line *line = &it->lines[at];
        pr_rec rec;
        uint16_t numbers[NUMBERS];
        uint32_t need;
        EQ(api->grant_get(it->ctx, line->id, &rec, numbers, NUMBERS, &need), PR_OK);
        EQ(need, line->n);
        EQ(rec.who.job, line->job);
        EQ(rec.who.host, it->where[line->host]);
        CHECK(memcmp(numbers, line->numbers, line->n * sizeof *numbers) == 0);
    }
    EQ(stats_of(it->ctx).allocs, it->n);
}

static uint32_t who_stands_at(const struct ledger *it, uint32_t index) {
    for (uint32_t at = 0; at < HOSTS; at++) {
        if (it->where[at] == index) return at;
    }
    return HOSTS;
}

/* Any asks; kept, taken back, or only thought of. */
static void transaction(struct ledger *it) {
    static pr_held before[4096], after[4096];
    const int what_if = below(&it->d, 4) == 0;
    int keep = !what_if && below(&it->d, 3) > 0;
    uint32_t pictured = keep ? 0 : picture(it, before, 4096), n_new = 0, mark = 0;
    struct line fresh[8];
    pr_txn txn;
    EQ(api->txn_begin(it->ctx, what_if ? PR_TXN_WHATIF : 0, it->now, &txn), PR_OK);
    if (what_if && it->n > 0) {
        pr_alloc gone[2] = {it->lines[below(&it->d, it->n)].id, it->lines[below(&it->d, it->n)].id};
        EQ(api->give(txn, gone, 2, NULL), gone[0] == gone[1] ? PR_ESTALE : PR_OK);
    }
    uint32_t kept = 0;
    for (uint32_t ask = 0; ask < 4; ask++) {
        const uint32_t kind = below(&it->d, PROFILES), n = 1 + below(&it->d, 2);
        const uint32_t flags = n == 1 ? 0 : below(&it->d, 3) == 0 ? PR_RESERVE_ALL | PR_RESERVE_SAME : PR_RESERVE_ALL;
        if (ask == 2) {
            EQ(api->mark(txn, &mark), PR_OK);
            kept = n_new;
        }
        pr_want wants[2];
        pr_grant grants[2];
        uint16_t numbers[2 * NUMBERS];
        uint32_t need, index = below(&it->d, HOSTS);
        it->job++;
        for (uint32_t w = 0; w < n; w++) wants[w] = (pr_want){.job = it->job, .replica = w, .profile = it->profiles[kind], .host = (index + w) % HOSTS};
        pr_need question = {.profile = it->profiles[kind]};
        uint64_t fits = 0;
        CHECK(api->feasible(txn, &question, NULL, &fits, NULL, 1) >= 0);
        int32_t code = api->reserve(txn, flags, wants, n, grants, numbers, 2 * NUMBERS, &need);
        CHECK(code == PR_OK || code == PR_ENOPORT || code == PR_ELIMIT);
        /* Who is alone gets it exactly if it was said to fit. */
        if (n == 1 && code != PR_ELIMIT) EQ(code == PR_OK, fits >> index & 1);
        if (flags == PR_RESERVE_ALL && code == PR_OK) CHECK((fits >> index & 1) && (fits >> (index + 1) % HOSTS & 1));
        for (uint32_t w = 0; code == PR_OK && w < n; w++, n_new++) {
            EQ(grants[w].n_ports, sizes[kind]);
            fresh[n_new] = (struct line){.id = grants[w].id, .job = it->job, .host = who_stands_at(it, wants[w].host), .profile = kind, .n = sizes[kind]};
            memcpy(fresh[n_new].numbers, numbers + grants[w].port_off, sizes[kind] * sizeof *numbers);
            if (flags & PR_RESERVE_SAME) CHECK(memcmp(fresh[n_new].numbers, numbers, sizes[kind] * sizeof *numbers) == 0);
        }
    }
    if (below(&it->d, 2) == 0) {
        EQ(api->rollback(txn, mark), PR_OK);
        n_new = kept;
    }
    if (it->n + n_new > MOST_HELD - 8) keep = 0;
    uint64_t number;
    if (keep) {
        EQ(api->commit(txn, &number), PR_OK);
        memcpy(it->lines + it->n, fresh, n_new * sizeof *fresh);
        it->n += n_new;
    } else {
        EQ(api->abort_(txn), PR_OK);
        if (pictured == 0) return;
        EQ(picture(it, after, 4096), pictured);
        CHECK(memcmp(before, after, pictured * sizeof *after) == 0);
    }
}

static void ends(struct ledger *it) {
    if (it->n == 0) return;
    const uint32_t at = below(&it->d, it->n);
    if (below(&it->d, 3) == 0) EQ(api->release_begin(it->ctx, &it->lines[at].id, 1, 0, NULL) == PR_EINVAL, 0);
    EQ(api->release_confirm(it->ctx, &it->lines[at].id, 1, below(&it->d, 2), it->now, NULL), PR_OK);
    it->lines[at] = it->lines[--it->n];
}

static void the_ledger_agrees_with_the_context(void) {
    uint64_t commits = 0, aborts = 0, lives = 0;
    for (uint32_t life = 0; life < rounds(getenv("PORTREEVE_LONG") != NULL ? 2000 : 20); life++) {
        struct ledger it = {.d = {life}, .where = {0, 1, 2}};
        pr_config config = small_config(PR_CFG_NO_RESTORE);
        config.max_hosts = HOSTS;
        config.max_allocs = MOST_HELD;
        it.ctx = make(&config);
        put_all(&it);
        const pr_port ports[PROFILES][2] = {{{.name = text("a"), .proto = PR_TCP}},
                                            {{.name = text("a"), .proto = PR_UDP}, {.name = text("b"), .proto = PR_UDP}},
                                            {{.name = text("a"), .count = 4, .proto = PR_TCP}},
                                            {{.name = text("a"), .fixed = 8080, .proto = PR_TCP}},
                                            {{.name = text("a"), .fixed = 8081, .proto = PR_TCP_UDP}},
                                            {{.name = text("a"), .count = 7, .proto = PR_TCP_UDP}, {.name = text("b"), .proto = PR_TCP_UDP}}};
        for (uint32_t at = 0; at < PROFILES; at++) it.profiles[at] = put_profile(it.ctx, "web.alice", ports[at], at == 1 || at == 5 ? 2 : 1);
        for (uint32_t step = 0; step < 60; step++) {
            trying("life %u, step %u", life, step);
            uint64_t next;
            it.now += below(&it.d, 30);
            switch (below(&it.d, 8)) {
            case 0:
            case 1: ends(&it); break;
            case 2: EQ(api->pump(it.ctx, it.now, &next), PR_OK); break;
            case 3: { /* Two change their places. */
                const uint32_t a = below(&it.d, HOSTS), b = below(&it.d, HOSTS), was = it.where[a];
                it.where[a] = it.where[b];
                it.where[b] = was;
                put_all(&it);
                break;
            }
            case 4: {
                const pr_foreign stranger = {.lo = (uint16_t)(20000 + below(&it.d, 24)), .hi = 20023, .proto = 1 + below(&it.d, 3)};
                EQ(api->report_foreign(it.ctx, below(&it.d, HOSTS), ++it.seq, &stranger, below(&it.d, 2)), PR_OK);
                break;
            }
            default: transaction(&it);
            }
            no_number_is_held_twice(&it);
            EQ(api->pump(it.ctx, it.now, &next), PR_OK);
            each_line_is_as_it_says(&it);
        }
        commits += stats_of(it.ctx).commits;
        aborts += stats_of(it.ctx).aborts;
        lives++;
        EQ(api->destroy(it.ctx), PR_OK);
    }
    /* Lives in which little is given and taken back try little. */
    CHECK(commits > 5 * lives && aborts > 2 * lives);
}

const struct test ledger_tests[] = {
    {"the_ledger_agrees_with_the_context", the_ledger_agrees_with_the_context},
    {NULL, NULL},
};
