#include "test.h"
const struct test texts_tests[] = {{NULL, NULL}};
