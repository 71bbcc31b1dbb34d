#include "test.h"
const struct test ports_tests[] = {{NULL, NULL}};
