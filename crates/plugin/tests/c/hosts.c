#include "test.h"
const struct test hosts_tests[] = {{NULL, NULL}};
