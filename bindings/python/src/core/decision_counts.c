/* SPDX-License-Identifier: MIT */
/* How often the limiters of a table allowed and denied in this process, by label. */
#include "core.h"

#include <string.h>

#define OTHERS "(further limiters)"

static struct decision_counts *find(const struct table_object *table, const char *label,
                                    Py_ssize_t len, size_t *n_known)
{
    *n_known = 0;
    struct decision_counts *counts = table->counts;
    while (counts != NULL &&
           (counts->label_len != len || memcmp(counts->label, label, (size_t)len) != 0)) {
        counts = counts->next;
        (*n_known)++;
    }
    return counts;
}

struct decision_counts *decision_counts_of(struct table_object *table, const char *label,
                                           Py_ssize_t len)
{
    size_t n_known;
    struct decision_counts *counts = find(table, label, len, &n_known);
    if (counts == NULL && n_known >= DECISION_LABELS_MAX) {
        label = OTHERS;
        len = sizeof(OTHERS) - 1;
        counts = find(table, label, len, &n_known);
    }
    if (counts != NULL)
        return counts;
    counts = PyMem_Calloc(1, sizeof(*counts) + (size_t)len);
    if (counts == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    memcpy(counts->label, label, (size_t)len);
    counts->label_len = len;
    counts->next = table->counts;
    table->counts = counts;
    return counts;
}

void decision_counts_open(struct table_object *table)
{
    struct table_object **first = &table->state->tables;
    table->next = *first;
    table->link = first;
    if (table->next != NULL)
        table->next->link = &table->next;
    *first = table;
}

static void leave_list(struct table_object *table)
{
    if (table->link == NULL)
        return;
    *table->link = table->next;
    if (table->next != NULL)
        table->next->link = table->link;
    table->link = NULL;
}

void decision_counts_close(struct table_object *table)
{
    struct decision_counts *next;
    leave_list(table);
    for (struct decision_counts *counts = table->counts; counts != NULL; counts = next) {
        next = counts->next;
        PyMem_Free(counts);
    }
}

void decision_counts_leave(struct core_state *state)
{
    while (state->tables != NULL)
        leave_list(state->tables);
}

static bool add_label(const struct core_state *state, PyObject *labels,
                      const struct decision_counts *counts)
{
    PyObject *label = PyUnicode_DecodeUTF8(counts->label, counts->label_len, "replace");
    PyObject *numbers = PyDict_New();
    bool is_added = label != NULL && numbers != NULL;
    for (int i = 0; is_added && i < OUTCOMES; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(counts->by_outcome[i]);
        is_added = number != NULL && PyDict_SetItem(numbers, state->outcome_names[i], number) == 0;
        Py_XDECREF(number);
    }
    is_added = is_added && PyDict_SetItem(labels, label, numbers) == 0;
    Py_XDECREF(label);
    Py_XDECREF(numbers);
    return is_added;
}

PyObject *decision_counts_read(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct table_object *table = (struct table_object *)self;
    PyObject *labels = PyDict_New();
    for (struct decision_counts *counts = table->counts; labels != NULL && counts != NULL;
         counts = counts->next)
        if (!add_label(table->state, labels, counts))
            Py_CLEAR(labels);
    return labels;
}

PyObject *decision_counts_forget(PyObject *module, PyObject *unused)
{
    (void)unused;
    const struct core_state *state = PyModule_GetState(module);
    for (struct table_object *table = state->tables; table != NULL; table = table->next) {
        table->uses = 0;
        for (struct decision_counts *counts = table->counts; counts != NULL; counts = counts->next)
            memset(counts->by_outcome, 0, sizeof(counts->by_outcome));
    }
    Py_RETURN_NONE;
}
