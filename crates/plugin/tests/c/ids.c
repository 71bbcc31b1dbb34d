#include "test.h"
const struct test ids_tests[] = {{NULL, NULL}};
