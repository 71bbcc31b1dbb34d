/* Every call of the table with one argument wrong at a time: each is refused with its code, nothing is written and
 * nothing has changed. All pointers are to memory that ends at a page nobody may touch. */
#include "calls.h"

/* What the call may have written, before and after. */
struct outputs {
    unsigned char bytes[PARAMS][1024];
};

static void look(const struct call *call, const union value *values, struct outputs *seen) {
    memset(seen, 0, sizeof *seen);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        const struct param *param = &call->params[at];
        if (!is_pointer(param->role) || param->role == NEED || param->role == CODES || values[at].p == NULL) continue;
        /* An address off the alignment by one is looked at in the same place. */
        const unsigned char *p = (const unsigned char *)((uintptr_t)values[at].p / param->align * param->align);
        size_t n = param->role != BUFFER ? param->size : values[at + 1].u * (param->align == 1 ? 1 : param->size);
        if (call->params[at + 1].role == BYTES) n = values[at + 1].u;
        if (n > sizeof seen->bytes[0]) n = sizeof seen->bytes[0];
        memcpy(seen->bytes[at], p, n);
    }
}

void must_refuse(const struct call *call, const struct world *world, const union value *values, int64_t code) {
    static struct outputs before, after;
    pr_stats was = {0}, is = {0};
    look(call, values, &before);
    if (world->ctx != 0) was = stats_of(world->ctx);
    int64_t answer = call->go(values);
    EQ(answer, code);
    look(call, values, &after);
    if (world->ctx != 0) is = stats_of(world->ctx);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
    CHECK(same_state(&was, &is));
}

void for_each_call(void (*with)(const struct call *, const struct world *, const union value *)) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        trying("%s", it->name);
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        with(it, &world, values);
        end_world(&world);
    }
}

/* Ends what a call made that a world does not end. */
static void end_made(const struct call *call, struct world *world, const union value *values) {
    if (strcmp(call->name, "create") == 0) EQ(api->destroy(*(pr_ctx *)values[1].p), PR_OK);
    if (strcmp(call->name, "sup_new") == 0) EQ(api->sup_free(*(pr_sup *)values[2].p), PR_OK);
    if (strcmp(call->name, "sup_load") == 0) EQ(api->sup_free(*(pr_sup *)values[3].p), PR_OK);
    if (strcmp(call->name, "sup_free") == 0) world->sup = 0;
    if (strcmp(call->name, "destroy") == 0) world->ctx = 0;
}

static void each_call_succeeds_with_its_arguments(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        trying("%s", it->name);
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        int64_t code = it->go(values);
        if (code < 0) EQ(code, PR_OK);
        else end_made(it, &world, values);
        end_world(&world);
    }
}

/* abi 9 */
static void null_one(const struct call *call, const struct world *world, const union value *values) {
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        enum role role = call->params[at].role;
        if (!is_pointer(role) || role == IN_OR_NULL || role == OUT_OR_NULL || role == CODES) continue;
        trying("%s, argument %u NULL", call->name, at);
        probe[at].p = NULL;
        must_refuse(call, world, probe, PR_EINVAL);
        probe[at] = values[at];
    }
}

static void null_is_refused_for_each_pointer(void) {
    for_each_call(null_one);
}

/* abi 9: NULL for what "or NULL" says, and with no elements or no room. */
static void null_where_it_may_be(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        for (unsigned at = 0; it->params[at].role != END; at++) {
            enum role role = it->params[at].role;
            int counted = role == ARRAY || role == OUT_ARRAY || role == BUFFER;
            if (!counted && role != IN_OR_NULL && role != OUT_OR_NULL && role != CODES) continue;
            trying("%s, argument %u NULL where it may be", it->name, at);
            struct world world = make_world(it->phase);
            union value values[PARAMS + 1];
            arguments(it, &world, values);
            values[at].p = NULL;
            /* No room, no element: its own number is the next CAP or COUNT. */
            for (unsigned n = at + 1; counted && it->params[n].role != END; n++) {
                if (it->params[n].role != CAP && it->params[n].role != COUNT) continue;
                values[n].u = 0;
                break;
            }
            if (strcmp(it->name, "reserve") == 0 && role == OUT_ARRAY) values[3].u = 0;
            int64_t code = it->go(values);
            CHECK(code >= 0 || code == PR_ENOSPC || (role == ARRAY && code == PR_EINVAL && at == 3));
            end_world(&world);
        }
    }
}

static void misaligned_one(const struct call *call, const struct world *world, const union value *values) {
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        if (!is_pointer(call->params[at].role) || call->params[at].align == 1) continue;
        trying("%s, argument %u off by a byte", call->name, at);
        probe[at].p = (void *)((uintptr_t)values[at].p - 1);
        must_refuse(call, world, probe, PR_EINVAL);
        probe[at] = values[at];
    }
}

static void a_misaligned_pointer_is_refused(void) {
    for_each_call(misaligned_one);
}

/* abi 8 */
static void flags_one(const struct call *call, const struct world *world, const union value *values) {
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        if (call->params[at].role != FLAGS) continue;
        for (unsigned bit = 0; bit < 32; bit++) {
            if (call->params[at].with >> bit & 1) continue;
            trying("%s, argument %u with bit %u", call->name, at, bit);
            probe[at].u = 1u << bit | call->params[at].with;
            must_refuse(call, world, probe, PR_EINVAL);
        }
        probe[at] = values[at];
    }
}

static void an_unknown_flag_is_refused_in_each_call(void) {
    for_each_call(flags_one);
}

/* abi 8 in what is pointed to: where its flags are, and which are known. */
static const struct struct_flags {
    const char *call, *type;
    uint32_t offset, known;
} struct_flags[] = {
    {"create", "pr_config", offsetof(pr_config, flags), PR_CFG_NO_RESTORE},
    {"host_put", "pr_host", offsetof(pr_host, flags), PR_HOST_LOWEST | PR_HOST_RANDOM},
    {"network_put", "pr_network", offsetof(pr_network, flags), 0},
    {"profile_put", "pr_profile", offsetof(pr_profile, flags), 0},
    {"restore_put", "pr_rec", offsetof(pr_rec, flags), PR_REC_CONFLICT},
    {"restore_put", "pr_rec", offsetof(pr_rec, who.flags), PR_WANT_PREFER},
    {"reserve", "pr_want", offsetof(pr_want, flags), PR_WANT_PREFER},
    {"wait_put", "pr_want", offsetof(pr_want, flags), PR_WANT_PREFER},
    {"report_addr", "pr_addr", offsetof(pr_addr, flags), 0},
    {"report_foreign", "pr_foreign", offsetof(pr_foreign, flags), 0},
    {"sup_event", "pr_sup_event", offsetof(pr_sup_event, flags), 15},
};

static void an_unknown_flag_is_refused_in_each_struct(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        for (size_t f = 0; f < sizeof struct_flags / sizeof *struct_flags; f++) {
            const struct struct_flags *flags = &struct_flags[f];
            if (strcmp(flags->call, it->name) != 0) continue;
            struct world world = make_world(it->phase);
            union value values[PARAMS + 1];
            unsigned at = 0;
            while (strcmp(it->params[at].type, flags->type) != 0) at++;
            for (unsigned bit = 0; bit < 32; bit++) {
                if (flags->known >> bit & 1) continue;
                arguments(it, &world, values);
                trying("%s, %s with bit %u", it->name, flags->type, bit);
                uint32_t set = 1u << bit;
                memcpy((char *)values[at].p + flags->offset, &set, sizeof set);
                pr_stats was = stats_of(world.ctx);
                int64_t code = it->go(values);
                EQ(code, PR_EINVAL);
                pr_stats is = stats_of(world.ctx);
                CHECK(same_state(&was, &is));
            }
            end_world(&world);
        }
    }
}

/* abi 14: the array is of one element and a page that faults follows it. */
static void count_one(const struct call *call, const struct world *world, const union value *values) {
    static const uint64_t many[] = {0xffffffff, 0x80000000, 1 << 25};
    union value probe[PARAMS + 1];
    memcpy(probe, values, sizeof probe);
    for (unsigned at = 0; call->params[at].role != END; at++) {
        if (call->params[at].role != COUNT) continue;
        for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
            trying("%s, argument %u is %#llx", call->name, at, (unsigned long long)many[m]);
            probe[at].u = many[m];
            must_refuse(call, world, probe, PR_ELIMIT);
        }
        probe[at] = values[at];
    }
}

static void a_count_too_large_is_refused_before_anything_is_read(void) {
    for_each_call(count_one);
}

/* A buffer said to be as large as can be is written no further than the answer goes: all of these fit in one element. */
static void a_huge_cap_is_no_reason_to_write_more(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        for (unsigned at = 0; it->params[at].role != END; at++) {
            if (it->params[at].role != CAP || it->params[at - 1].align == 1) continue;
            trying("%s, argument %u is 2^32-1", it->name, at);
            struct world world = make_world(it->phase);
            union value values[PARAMS + 1];
            arguments(it, &world, values);
            values[at].u = 0xffffffff;
            int64_t code = it->go(values);
            CHECK(code >= 0);
            end_world(&world);
        }
    }
}

/* A buffer one element too small: PR_ENOSPC, `need` is what a full answer takes, and with exactly that it succeeds. */
static void a_buffer_too_small_says_what_it_needs(void) {
    for (const struct call *it = calls; it < calls + n_calls; it++) {
        unsigned buffer = 0, need = 0;
        for (unsigned at = 0; it->params[at].role != END; at++) {
            if (it->params[at].role == BUFFER) buffer = at;
            if (it->params[at].role == NEED) need = at;
        }
        if (need == 0) continue;
        trying("%s, too little room", it->name);
        struct world world = make_world(it->phase);
        union value values[PARAMS + 1];
        arguments(it, &world, values);
        void *room = values[buffer].p;
        values[buffer].p = NULL;
        values[buffer + 1].u = 0;
        int64_t code = it->go(values);
        uint32_t needed = *(uint32_t *)values[need].p;
        EQ(code, needed == 0 ? PR_OK : PR_ENOSPC);
        uint32_t size = it->params[buffer].align == 1 ? 1 : it->params[buffer].size;
        for (uint32_t cap = 1; needed > 0 && cap < needed; cap = cap * 2 < needed - 1 || cap == needed - 1 ? cap * 2 : needed - 1) {
            values[buffer].p = guarded(buffer, (size_t)cap * size);
            values[buffer + 1].u = cap;
            *(uint32_t *)values[need].p = 0;
            must_refuse(it, &world, values, PR_ENOSPC);
            EQ(*(uint32_t *)values[need].p, needed);
        }
        values[buffer].p = needed == 0 ? room : guarded(buffer, (size_t)needed * size);
        values[buffer + 1].u = needed;
        CHECK(it->go(values) >= 0);
        EQ(*(uint32_t *)values[need].p, needed);
        end_world(&world);
    }
}

const struct test matrix_tests[] = {
    {"each_call_succeeds_with_its_arguments", each_call_succeeds_with_its_arguments},
    {"null_is_refused_for_each_pointer", null_is_refused_for_each_pointer},
    {"null_where_it_may_be", null_where_it_may_be},
    {"a_misaligned_pointer_is_refused", a_misaligned_pointer_is_refused},
    {"an_unknown_flag_is_refused_in_each_call", an_unknown_flag_is_refused_in_each_call},
    {"an_unknown_flag_is_refused_in_each_struct", an_unknown_flag_is_refused_in_each_struct},
    {"a_count_too_large_is_refused_before_anything_is_read", a_count_too_large_is_refused_before_anything_is_read},
    {"a_huge_cap_is_no_reason_to_write_more", a_huge_cap_is_no_reason_to_write_more},
    {"a_buffer_too_small_says_what_it_needs", a_buffer_too_small_says_what_it_needs},
    {NULL, NULL},
};
