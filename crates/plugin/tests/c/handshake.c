#include "test.h"
const struct test handshake_tests[] = {{NULL, NULL}};
