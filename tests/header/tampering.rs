//! What somebody may do to the header, well or ill.

/// A change of the header's text, and whether the contract survives it.
pub(crate) struct Tampering {
    pub(crate) name: &'static str,
    /// Words of the header, each with what to put in its place.
    edits: &'static [(&'static str, &'static str)],
    /// Whether old callers are served as before.
    pub(crate) passes: bool,
    /// Whether it says nothing to a compiler.
    pub(crate) is_silent: bool,
    /// Whether it is in the debug information of an object: constants are not, and a reader of it takes a
    /// name for a matter of taste.
    pub(crate) is_in_objects: bool,
}

impl Tampering {
    /// The header after it.
    pub(crate) fn of(&self, header: &str) -> String {
        self.edits
            .iter()
            .fold(header.to_owned(), |text, (from, to)| {
                let found = text.matches(from).count();
                assert_eq!(found, 1, "{}: {from:?} is not there once", self.name);
                text.replace(from, to)
            })
    }

    const fn passes(name: &'static str, edits: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            name,
            edits,
            passes: true,
            is_silent: false,
            is_in_objects: true,
        }
    }

    const fn fails(name: &'static str, edits: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            passes: false,
            ..Self::passes(name, edits)
        }
    }

    const fn passes_in_source(
        name: &'static str,
        edits: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            is_in_objects: false,
            ..Self::passes(name, edits)
        }
    }

    const fn fails_in_source(
        name: &'static str,
        edits: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self {
            is_in_objects: false,
            ..Self::fails(name, edits)
        }
    }

    const fn silent(name: &'static str, edits: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            is_silent: true,
            ..Self::passes(name, edits)
        }
    }
}

pub(crate) const TAMPERINGS: &[Tampering] = &[
    Tampering::passes(
        "append-a-member",
        &[("} pr_host;", "  uint64_t added;\n} pr_host;")],
    ),
    Tampering::passes(
        "append-two-members",
        &[("} pr_config;", "  uint32_t one, two;\n} pr_config;")],
    ),
    Tampering::passes(
        "append-to-a-strided-struct",
        &[("} pr_port;", "  uint64_t added;\n} pr_port;")],
    ),
    Tampering::passes(
        "append-a-function",
        &[("} pr_api;", "  int32_t (*added)(pr_ctx ctx);\n} pr_api;")],
    ),
    Tampering::passes_in_source(
        "append-a-code",
        &[("PR_ENOSYS   = -17", "PR_ENOSYS = -17, PR_EADDED = -18")],
    ),
    Tampering::passes_in_source(
        "append-a-flag",
        &[(
            "#define PR_RESET 2u",
            "#define PR_ADDED 4u\n#define PR_RESET 2u",
        )],
    ),
    Tampering::passes_in_source(
        "append-a-struct",
        &[(
            "/* Who asks for the table. */",
            "typedef struct pr_added {\n  uint64_t x;\n} pr_added;\n/* Who asks for the table. */",
        )],
    ),
    Tampering::silent(
        "rename-a-parameter",
        &[("(*destroy)(pr_ctx ctx)", "(*destroy)(pr_ctx which)")],
    ),
    Tampering::silent(
        "reword-a-comment",
        &[("/* Who asks for the table. */", "/* The caller. */")],
    ),
    Tampering::fails(
        "insert-a-member",
        &[(
            "typedef struct pr_host {\n    uint32_t size;",
            "typedef struct pr_host {\n    uint32_t size, one, two;",
        )],
    ),
    Tampering::fails(
        "insert-a-function",
        &[(
            "  int32_t (*destroy)(pr_ctx ctx);",
            "  int32_t (*added)(pr_ctx ctx);\n  int32_t (*destroy)(pr_ctx ctx);",
        )],
    ),
    Tampering::fails(
        "reorder-members",
        &[(
            "    uint16_t fixed;         /* this very number; 0: any */\n    uint16_t count; ",
            "    uint16_t count;\n    uint16_t fixed; ",
        )],
    ),
    Tampering::fails(
        "reorder-functions",
        &[
            (
                "(*mark)(pr_txn txn, uint32_t *mark);",
                "(*rollback)(pr_txn, uint32_t);",
            ),
            (
                "(*rollback)(pr_txn txn, uint32_t mark);",
                "(*mark)(pr_txn, uint32_t *);",
            ),
        ],
    ),
    Tampering::fails(
        "resize-a-member",
        &[("    uint64_t seed; ", "    uint32_t seed, rest; ")],
    ),
    Tampering::fails(
        "resize-an-array",
        &[("    char comm[16]; ", "    char comm[24]; ")],
    ),
    Tampering::fails(
        "change-a-sign",
        &[("    int32_t rc;  ", "    uint32_t rc;  ")],
    ),
    Tampering::fails("remove-a-member", &[("    uint32_t foreign_rest_ms;", "")]),
    Tampering::fails(
        "remove-a-function",
        &[("  int32_t (*sup_free)(pr_sup sup);", "")],
    ),
    Tampering::fails_in_source(
        "rename-a-member",
        &[("    pr_want who;  ", "    pr_want whose;  ")],
    ),
    Tampering::fails(
        "change-a-parameter",
        &[(
            "(*host_remove)(pr_ctx ctx, uint32_t host, uint32_t flags);",
            "(*host_remove)(pr_ctx ctx, uint64_t host, uint32_t flags);",
        )],
    ),
    Tampering::fails(
        "append-to-a-frozen-struct",
        &[("} pr_endpoint;", "  uint64_t added;\n} pr_endpoint;")],
    ),
    Tampering::fails_in_source(
        "change-a-code",
        &[("PR_ESTALE   = -2", "PR_ESTALE   = -20")],
    ),
    Tampering::fails_in_source(
        "change-the-sign-of-a-flag",
        &[("#define PR_REMOVE_FORCE 1u", "#define PR_REMOVE_FORCE 1")],
    ),
    Tampering::fails_in_source("remove-a-reason", &[("    PR_R_LOST         = 12,", "")]),
];
