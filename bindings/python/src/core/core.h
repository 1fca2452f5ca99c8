/* SPDX-License-Identifier: MIT */
/*
 * The extension stint._core: quotas, tables, limiters, decisions and pools of keys as types of
 * Python. Nothing is static but tables of constants: each interpreter has a module of its own, with
 * the state below. Every function runs under the interpreter's lock unless its comment says so.
 */
#ifndef STINT_CORE_H
#define STINT_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "stint.h"

#include <structmember.h>

#define OUTCOMES 3

struct core_state {
    /* References first: module.c visits and clears what stands before `tables`. */
    PyObject *error, *quota_error, *gone_error, *table_error;
    PyTypeObject *quota_type, *decision_type, *table_type, *limiter_type, *pool_type, *count_type;
    PyObject *outcome_names[OUTCOMES];
    struct table_object *tables; /* all that are open, or were */
};

/* ---- module.c ---- */

/* The state of the module that defines the type or a base of it. */
struct core_state *core_state_of(PyTypeObject *type);
/* Sets the exception of a code of the engine, with its message; returns NULL. */
void *core_raise(const struct core_state *state, int code, const char *message, ...)
    __attribute__((format(printf, 3, 4)));

/* The same as a TableError, whatever the code is. */
void *core_raise_table(const struct core_state *state, int code, const char *message);

/* For a table of methods. */
#define CORE_FAST(function) ((PyCFunction)(void (*)(void))(function))

/* An object of the type, all zero after its head; NULL with an exception. */
void *core_alloc(PyTypeObject *type);
/* Frees an object whose members are released; gives up its reference to the type. */
void core_free(PyObject *object);

/*
 * Sorts the arguments of a call by name: values[i] is that of names[i], or NULL if it is absent,
 * which only those from `required` on may be. False with a TypeError.
 */
struct core_signature {
    const char *function;
    int required, n_names;
    const char *names[4];
};
bool core_arguments(const struct core_signature *signature, PyObject *const *args, Py_ssize_t n,
                    PyObject *keywords, PyObject **values);

/* A key: text as UTF-8, without a copy, or bytes. */
struct core_key {
    const char *bytes;
    Py_ssize_t len;
    PyObject *owned; /* to be released; NULL unless the text had to be copied */
};
bool core_key(PyObject *value, struct core_key *key);
/* An integer within 0 … max; a QuotaError of RANGE or a TypeError otherwise. */
bool core_number(const struct core_state *state, PyObject *value, const char *name, uint64_t max,
                 uint64_t *number);
/* Seconds as nanoseconds, rounded; max at most STINT_NOW_MAX. */
bool core_seconds(const struct core_state *state, PyObject *value, const char *name,
                  uint64_t max_ns, uint64_t *ns);

/* ---- engine.c ---- */

#define ENGINE_TEXTS 5

/*
 * Writes what `stint explain` prints in one of its sections: what is allowed, the bound, when it
 * denies early, how long a denial lasts, bytes. Terminated, maybe empty.
 */
void engine_text(const struct stint_quota *quota, int part, char *text, size_t size);

/* ---- quota.c ---- */

struct quota_object {
    PyObject_HEAD struct stint_quota quota;
};

extern PyType_Spec quota_spec;

/* ---- decision.c ---- */

extern PyType_Spec decision_spec;

/* at_ns: the time of the decision; quotas: a tuple, of which the decision takes a reference. */
PyObject *decision_new(const struct core_state *state, const struct stint_decision *decision,
                       PyObject *quotas, uint64_t at_ns);

/* The index of the name of an outcome, or -1 with a ValueError. */
int decision_outcome(const struct core_state *state, PyObject *name);

/* ---- table.c ---- */

struct table_object {
    PyObject_HEAD struct stint_table *table; /* NULL: closed */
    struct core_state *state;
    uint32_t uses; /* calls that run without the interpreter's lock */
    struct decision_counts *counts;
    struct table_object *next, **link; /* in the list of the state; link: what points here */
};

extern PyType_Spec table_spec;

/* The open table of an object, or NULL with a TableError. */
static inline struct stint_table *table_opened(struct table_object *object)
{
    if (object->table == NULL)
        core_raise_table(object->state, STINT_E_MISMATCH, "the table is closed; open a new one");
    return object->table;
}

/* ---- decision_counts.c ---- */

/*
 * What the limiters of one label decided in this process, by outcome. A table has a list of them,
 * which grows at its head only, and is freed with it: a limiter keeps a pointer to its own.
 */
struct decision_counts {
    struct decision_counts *next;
    uint64_t by_outcome[OUTCOMES];
    Py_ssize_t label_len;
    char label[];
};

/*
 * The counts of a label, made if they are new. Labels beyond the first DECISION_LABELS_MAX are
 * counted together, under a label that says so. NULL with a MemoryError.
 */
#define DECISION_LABELS_MAX 1000
struct decision_counts *decision_counts_of(struct table_object *table, const char *label,
                                           Py_ssize_t len);
/* Enters a table in the list of the state, and at its end removes it and frees its counts. */
void decision_counts_open(struct table_object *table);
void decision_counts_close(struct table_object *table);
/* The state is freed, maybe before tables that are garbage with it. */
void decision_counts_leave(struct core_state *state);

/* A method of Table. */
PyObject *decision_counts_read(PyObject *self, PyObject *unused);
/*
 * A function of the module, in a child after fork(): what the parent counted is the parent's, and
 * threads that read a table are not there.
 */
PyObject *decision_counts_forget(PyObject *module, PyObject *unused);

/* ---- counter.c ---- */

extern PyType_Spec count_spec;

/* Methods of Table. */
PyObject *counter_count(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords);
PyObject *counter_read(PyObject *self, PyObject *key);
PyObject *counter_reset(PyObject *self, PyObject *key);

/* ---- limiter.c ---- */

extern PyType_Spec limiter_spec;

/* ---- pool.c ---- */

extern PyType_Spec pool_spec;

#endif
