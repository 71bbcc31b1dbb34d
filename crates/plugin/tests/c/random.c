/* Calls in any order with arguments that are right, nearly right, and wrong. Nothing is promised but this: each answers with
 * a code of the header, nobody touches what is not theirs, and no context is poisoned. */
#include "calls.h"

enum { WORLDS = 3, KNOWN = 64 };

/* Ids that calls gave out, dead or alive, and what else makes a call more than a refusal. */
struct play {
    struct dice d;
    struct world worlds[WORLDS];
    struct {
        uint64_t id;
        unsigned kind;
    } ids[KNOWN];
    uint64_t now;
    uint32_t answered, good;
};

static uint64_t any_id(struct play *play) {
    switch (below(&play->d, 16)) {
    case 0: return roll(&play->d);
    case 1: return play->ids[below(&play->d, KNOWN)].id ^ 1ull << below(&play->d, 64);
    case 2: return 0;
    default: return play->ids[below(&play->d, KNOWN)].id;
    }
}

static uint64_t id_of_kind(struct play *play, uint64_t kind) {
    /* Mostly one of its kind, or nothing would ever happen. */
    for (int turn = 0; turn < 40; turn++) {
        const unsigned at = below(&play->d, KNOWN);
        if (play->ids[at].kind == kind) return play->ids[at].id;
    }
    return any_id(play);
}

static uint32_t small(struct play *play) {
    static const uint32_t odd[] = {63, 64, 65, 255, 256, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
    if (below(&play->d, 12) == 0) return odd[below(&play->d, sizeof odd / sizeof *odd)];
    return below(&play->d, 5);
}

/* Scatters a few wrong numbers over what is pointed to, past its size and before its pointers. */
static void disturb(struct play *play, const struct param *param, unsigned char *p) {
    if (below(&play->d, 4) != 0) return;
    const uint32_t value = small(play);
#define AT(type, member) offsetof(type, member)
    static const struct {
        const char *type;
        size_t offsets[8];
    } numbers[] = {
        {"pr_host", {AT(pr_host, flags), AT(pr_host, host), AT(pr_host, state), AT(pr_host, cool_ms)}},
        {"pr_network", {AT(pr_network, flags), AT(pr_network, ip), AT(pr_network, family), AT(pr_network, prefix)}},
        {"pr_want", {AT(pr_want, step), AT(pr_want, replica), AT(pr_want, incarnation), AT(pr_want, profile), AT(pr_want, host), AT(pr_want, flags)}},
        {"pr_rec", {AT(pr_rec, who.step), AT(pr_rec, who.profile), AT(pr_rec, who.host), AT(pr_rec, n_ports), AT(pr_rec, port_off),
                    AT(pr_rec, state), AT(pr_rec, ready), AT(pr_rec, cool_left_ms)}},
        {"pr_addr", {AT(pr_addr, family), AT(pr_addr, scope), AT(pr_addr, pref), AT(pr_addr, flags)}},
        {"pr_foreign", {AT(pr_foreign, proto), AT(pr_foreign, pid), AT(pr_foreign, flags)}},
        {"pr_ready", {AT(pr_ready, seq), AT(pr_ready, run), AT(pr_ready, state), AT(pr_ready, reason), AT(pr_ready, restarts)}},
        {"pr_need", {AT(pr_need, profile), AT(pr_need, replicas), AT(pr_need, at_ms)}},
        {"pr_sup_event", {AT(pr_sup_event, kind), AT(pr_sup_event, run), AT(pr_sup_event, probe_kind), AT(pr_sup_event, probe),
                          AT(pr_sup_event, result), AT(pr_sup_event, code), AT(pr_sup_event, flags), AT(pr_sup_event, ms)}},
    };
    for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at++) {
        if (strcmp(numbers[at].type, param->type) != 0) continue;
        uint32_t n = 1;
        while (n < 8 && numbers[at].offsets[n] != 0) n++;
        memcpy(p + numbers[at].offsets[below(&play->d, n)], &value, sizeof value);
    }
#undef AT
}

static void disturb_ids(struct play *play, const struct param *param, void *p) {
    const uint64_t id = id_of_kind(play, ALLOC);
    if (strcmp(param->type, "pr_ready") == 0 || strcmp(param->type, "pr_alloc") == 0) memcpy(p, &id, sizeof id);
    if (strcmp(param->type, "pr_want") == 0) {
        pr_want *want = p;
        want->job = below(&play->d, 12);
        want->host = below(&play->d, 3);
        want->replica = below(&play->d, 3);
        want->incarnation = below(&play->d, 8) == 0 ? PR_ANY : below(&play->d, 3);
        want->flags = below(&play->d, 4) == 0;
    }
}

static void disturb_ready(struct play *play, const struct param *param, void *p) {
    if (strcmp(param->type, "pr_ready") != 0) return;
    pr_ready *ready = p;
    ready->seq = roll(&play->d) >> below(&play->d, 64);
    ready->run = below(&play->d, 3);
    ready->state = below(&play->d, 6);
}

/* What a call gave out is used by later ones. */
static void remember(struct play *play, const struct call *call, const union value *values) {
    static const struct {
        const char *type;
        unsigned kind;
    } given[] = {{"pr_txn", TRANSACTION}, {"pr_alloc", ALLOC}, {"pr_grant", ALLOC}, {"pr_snap", SNAP}, {"pr_watch", WATCH}, {"pr_sup", SUP}};
    for (unsigned at = 0; call->params[at].role != END; at++) {
        const struct param *param = &call->params[at];
        const int out = param->role == OUT || param->role == OUT_ARRAY || param->role == OUT_OR_NULL;
        for (size_t g = 0; out && values[at].p != NULL && g < sizeof given / sizeof *given; g++) {
            if (strcmp(given[g].type, param->type) != 0) continue;
            /* The contexts stay where they are. */
            const unsigned place = WORLDS * 7 + below(&play->d, KNOWN - WORLDS * 7);
            if (play->ids[place].kind == SUP) (void)api->sup_free(play->ids[place].id);
            memcpy(&play->ids[place].id, values[at].p, sizeof play->ids[place].id);
            play->ids[place].kind = given[g].kind;
        }
    }
}

static void one_call(struct play *play) {
    const struct call *call = &calls[below(&play->d, n_calls)];
    struct world *world = &play->worlds[below(&play->d, WORLDS)];
    /* Contexts that it makes itself are few, and ends of those that are played on come seldom. */
    if (strcmp(call->name, "create") == 0) return;
    if (strcmp(call->name, "destroy") == 0 && below(&play->d, 50) != 0) return;
    union value values[PARAMS + 1];
    struct world known = *world;
    /* Something in each place of an id; which, is decided below. */
    known.txn = known.held = known.snap = known.watch = 1;
    /* A state to load is that of a machine which surely lives. */
    EQ(api->sup_new(text(sup_profile), 1, &known.sup), PR_OK);
    arguments(call, &known, values);
    EQ(api->sup_free(known.sup), PR_OK);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        const struct param *param = &call->params[at];
        union value *value = &values[at];
        switch (param->role) {
        case ID: value->u = at > 0 && below(&play->d, 2) == 0 ? id_of_kind(play, ALLOC) : id_of_kind(play, param->with); break;
        case NUMBER:
            if (below(&play->d, 3) == 0) value->u = small(play);
            if (value->u == 1000) value->u = play->now += below(&play->d, 2000);
            if (strncmp(call->name, "report_", 7) == 0 && at == 2) value->u = ++play->now;
            break;
        case FLAGS: value->u = below(&play->d, 10) == 0 ? 1u << below(&play->d, 32) : below(&play->d, 2) * param->with; break;
        case COUNT:
            if (below(&play->d, 10) == 0) value->u = below(&play->d, 2) == 0 ? 0 : 0x80000000 + below(&play->d, 0x7fffffff);
            break;
        case CAP:
            /* Never more than there is. */
            if (below(&play->d, 3) == 0) value->u = below(&play->d, (uint32_t)value->u + 1);
            break;
        case TEXT:
            if (below(&play->d, 3) == 0) value->s = below(&play->d, 2) == 0 ? text("db.alice") : text("http");
            if (below(&play->d, 20) == 0) value->s = (pr_str){NULL, below(&play->d, 2)};
            break;
        default:
            if (!is_pointer(param->role)) break;
            if (param->role == IN || param->role == ARRAY) {
                disturb_ids(play, param, value->p);
                disturb_ready(play, param, value->p);
                disturb(play, param, value->p);
            }
            if (below(&play->d, 40) == 0) value->p = NULL;
        }
    }
    trying("seed %llu: %s", (unsigned long long)play->d.state, call->name);
    int64_t code = call->go(values);
    CHECK(code > PR_ENOSYS && code != PR_EPOISON && code != PR_EFORK);
    play->answered++;
    if (code >= 0) play->good++, remember(play, call, values);
}

static void begin(struct play *play, unsigned at) {
    play->worlds[at] = make_world(at == 2 ? RESTORING : IDLE);
    struct world *world = &play->worlds[at];
    const uint64_t ids[] = {world->ctx, world->ctx, world->ctx, world->held, world->snap, world->watch, world->sup};
    static const unsigned kinds[] = {CONTEXT, CONTEXT, CONTEXT, ALLOC, SNAP, WATCH, SUP};
    for (unsigned id = 0; id < 7; id++) {
        play->ids[at * 7 + id].id = ids[id];
        play->ids[at * 7 + id].kind = kinds[id];
    }
}

static void any_calls_in_any_order_do_no_harm(void) {
    const char *chosen = getenv("PORTREEVE_SEED");
    const uint32_t plays = rounds(getenv("PORTREEVE_LONG") != NULL ? 2000 : 40);
    uint64_t answered = 0, good = 0;
    for (uint32_t n = 0; n < plays; n++) {
        struct play play = {.d = {chosen != NULL ? strtoull(chosen, NULL, 0) : n}};
        for (unsigned at = 0; at < WORLDS; at++) begin(&play, at);
        for (uint32_t step = 0; step < 500; step++) {
            one_call(&play);
            if (step % 50 != 0) continue;
            for (unsigned at = 0; at < WORLDS; at++) {
                pr_stats stats = {.size = sizeof stats};
                int32_t code = api->stats(play.worlds[at].ctx, &stats);
                CHECK(code == PR_OK || code == PR_ESTALE);
                if (code != PR_OK) continue;
                EQ(stats.poisoned, 0);
                CHECK(stats.allocs <= MOST && stats.waits <= MOST && stats.hosts <= MOST);
                CHECK(stats.ports_used + stats.ports_cooling <= stats.ports_total + 65536);
            }
        }
        for (unsigned at = 0; at < WORLDS; at++) {
            int32_t code = api->destroy(play.worlds[at].ctx);
            CHECK(code == PR_OK || code == PR_ESTALE);
        }
        /* Machines have no context that ends them. */
        for (unsigned at = 0; at < KNOWN; at++) {
            if (play.ids[at].kind == SUP) (void)api->sup_free(play.ids[at].id);
        }
        answered += play.answered;
        good += play.good;
    }
    printf("%llu calls, %llu of them done\n", (unsigned long long)answered, (unsigned long long)good);
    /* A play in which all is refused tries nothing. */
    CHECK(good * 5 > answered);
}

const struct test random_tests[] = {
    {"any_calls_in_any_order_do_no_harm", any_calls_in_any_order_do_no_harm},
    {NULL, NULL},
};
