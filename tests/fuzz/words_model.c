/*
 * Prints the words that a model's text takes from the operators: their names, attributes and choices, as lines
 * of a dictionary. What the format itself knows stands in model.dict.
 */
#include <stdio.h>
#include <string.h>

#include "ops/op.h"

int main(void)
{
    size_t n;
    const ds_op_def *const *defs = ds_op_defs(&n);
    for (size_t i = 0; i < n; i++) {
        printf("\"\\\"%s\\\"\"\n", defs[i]->name);
        for (const ds_attr_def *d = defs[i]->attrs; d != NULL && d->name != NULL; d++) {
            printf("\"\\\"%s\\\":\"\n", d->name);
            for (const char *choice = d->choices; choice != NULL && *choice != 0;) {
                const size_t length = strcspn(choice, "|");
                printf("\"\\\"%.*s\\\"\"\n", (int)length, choice);
                choice += length + (choice[length] == '|' ? 1 : 0);
            }
        }
    }
    return 0;
}
