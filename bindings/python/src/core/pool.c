/* SPDX-License-Identifier: MIT */
/* Pool: keys with quotas of their own, of which one that may be used is chosen. */
#include "core.h"

#include <stdio.h>

struct pool_object {
    PyObject_HEAD struct stint_pool *pool;
    struct core_state *state;
    struct table_object *table;
};

static struct pool_object *pool_of(PyObject *self)
{
    return (struct pool_object *)self;
}

/* After all arguments: reading a number can run code that closes the table. */
static bool is_open(PyObject *self)
{
    return table_opened(pool_of(self)->table) != NULL;
}

static uint64_t now_of(PyObject *self)
{
    return stint_now(pool_of(self)->table->table);
}

static PyObject *raise_no_key(PyObject *self, int code, const char *name)
{
    if (code == STINT_E_GONE)
        return core_raise(pool_of(self)->state, code, "the pool has no key \"%s\"", name);
    return core_raise(pool_of(self)->state, code,
                      "granted_at_ns is out of range; expected granted_at_ns of a lease");
}

/* ---- Making a pool ---- */

static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"table", "name", "order", "keys_max", NULL};
    PyObject *table;
    const char *name;
    unsigned char order = STINT_ROUND_ROBIN;
    Py_ssize_t keys_max = 0;
    struct core_state *state = core_state_of(type);
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "O!s|bn:Pool", names, state->table_type,
                                     &table, &name, &order, &keys_max))
        return NULL;
    struct pool_object *self = core_alloc(type);
    if (self == NULL)
        return NULL;
    self->state = state;
    self->table = (struct table_object *)Py_NewRef(table);
    if (table_opened(self->table) == NULL)
        Py_CLEAR(self);
    if (self == NULL)
        return NULL;
    struct stint_pool_options options = {
        .name = name,
        .keys_max = (size_t)keys_max,
        .order = order,
    };
    struct stint_error error;
    int code = stint_pool_open(&self->pool, self->table->table, &options, &error);
    if (code < 0) {
        core_raise(state, code, "%s", error.message);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int pool_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(pool_of(self)->table);
    return 0;
}

static void pool_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    stint_pool_close(pool_of(self)->pool);
    Py_XDECREF(pool_of(self)->table);
    core_free(self);
}

/* ---- Keys ---- */

static PyObject *pool_add(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *given, *turns;
    uint64_t weight;
    const struct core_state *state = pool_of(self)->state;
    if (!PyArg_ParseTuple(args, "sO!O", &name, &PyTuple_Type, &given, &turns) ||
        !core_number(state, turns, "weight", STINT_POOL_WEIGHT_MAX, &weight) || !is_open(self))
        return NULL;
    struct stint_quota quotas[STINT_POOL_QUOTAS_MAX];
    Py_ssize_t n = PyTuple_Size(given);
    if (n < 1 || n > STINT_POOL_QUOTAS_MAX)
        return core_raise(state, STINT_E_RANGE, "the key \"%s\" has %zd quotas; expected 1 to %d",
                          name, n, STINT_POOL_QUOTAS_MAX);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(given, i);
        if (!PyObject_TypeCheck(item, state->quota_type))
            return PyErr_Format(PyExc_TypeError, "a quota is str or stint.Quota, not %R",
                                Py_TYPE(item));
        quotas[i] = ((struct quota_object *)item)->quota;
    }
    struct stint_pool_key key = {
        .name = name,
        .quotas = quotas,
        .n_quotas = (size_t)n,
        .weight = (uint32_t)weight,
    };
    struct stint_error error;
    int code = stint_pool_add(pool_of(self)->pool, &key, now_of(self), &error);
    if (code < 0)
        return core_raise(state, code, "%s", error.message);
    Py_RETURN_NONE;
}

static PyObject *pool_remove(PyObject *self, PyObject *args)
{
    const char *name;
    if (!PyArg_ParseTuple(args, "s:remove", &name) || !is_open(self))
        return NULL;
    struct stint_error error;
    int code = stint_pool_remove(pool_of(self)->pool, name, now_of(self), &error);
    if (code < 0)
        return core_raise(pool_of(self)->state, code, "%s", error.message);
    Py_RETURN_NONE;
}

/* Returns (name or None, wait_ns, granted_at_ns, probe, decision). */
static PyObject *pool_next(PyObject *self, PyObject *args)
{
    PyObject *given;
    int probe;
    uint64_t cost;
    const struct core_state *state = pool_of(self)->state;
    if (!PyArg_ParseTuple(args, "Op", &given, &probe) ||
        !core_number(state, given, "cost", UINT32_MAX, &cost) || !is_open(self))
        return NULL;
    struct stint_pool_ask ask = {
        .now_ns = now_of(self),
        .cost = (uint32_t)cost,
        .probe = probe != 0,
    };
    struct stint_pool_answer answer = stint_pool_next(pool_of(self)->pool, &ask);
    PyObject *none = PyTuple_New(0);
    PyObject *decision =
        none != NULL ? decision_new(state, &answer.decision, none, ask.now_ns) : NULL;
    Py_XDECREF(none);
    return decision != NULL
               ? Py_BuildValue("zKKNN", answer.name, (unsigned long long)answer.wait_ns,
                               (unsigned long long)answer.granted_at_ns,
                               PyBool_FromLong(answer.probe), decision)
               : NULL;
}

static PyObject *pool_report(PyObject *self, PyObject *args)
{
    const char *name;
    int outcome;
    PyObject *seconds;
    uint64_t cooldown_ns;
    const struct core_state *state = pool_of(self)->state;
    if (!PyArg_ParseTuple(args, "siO", &name, &outcome, &seconds) ||
        !core_seconds(state, seconds, "cooldown", STINT_NOW_MAX, &cooldown_ns) || !is_open(self))
        return NULL;
    struct stint_error error;
    int code =
        stint_pool_report(pool_of(self)->pool, name, outcome, cooldown_ns, now_of(self), &error);
    if (code < 0)
        return core_raise(state, code, "%s", error.message);
    Py_RETURN_NONE;
}

static PyObject *pool_give_back(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *given, *at;
    uint64_t cost, granted_at_ns = STINT_NEVER_NS;
    const struct core_state *state = pool_of(self)->state;
    if (!PyArg_ParseTuple(args, "sOO", &name, &given, &at) ||
        !core_number(state, given, "cost", UINT32_MAX, &cost) ||
        (at != Py_None &&
         !core_number(state, at, "granted_at_ns", STINT_NOW_MAX, &granted_at_ns)) ||
        !is_open(self))
        return NULL;
    uint32_t given_back = 0;
    int code = stint_pool_give_back(pool_of(self)->pool, name, (uint32_t)cost, granted_at_ns,
                                    now_of(self), &given_back);
    return code < 0 ? raise_no_key(self, code, name) : PyLong_FromUnsignedLong(given_back);
}

/* ---- Status ---- */

struct listing {
    const struct core_state *state;
    PyObject *list, *none;
    uint64_t now_ns;
};

static bool list_key(const struct stint_pool_status *status, void *arg)
{
    struct listing *listing = arg;
    PyObject *decision =
        decision_new(listing->state, &status->decision, listing->none, listing->now_ns);
    PyObject *row = decision != NULL
                        ? Py_BuildValue("sIiiKN", status->name, status->weight, status->standing,
                                        status->failures,
                                        (unsigned long long)status->returns_after_ns, decision)
                        : NULL;
    bool is_listed = row != NULL && PyList_Append(listing->list, row) == 0;
    Py_XDECREF(row);
    return is_listed;
}

/* Returns a list of (name, weight, standing, failures, returns_after_ns, decision). */
static PyObject *pool_status(PyObject *self, PyObject *args)
{
    if (!PyArg_ParseTuple(args, ":status") || !is_open(self))
        return NULL;
    struct listing listing = {
        .state = pool_of(self)->state,
        .list = PyList_New(0),
        .none = PyTuple_New(0),
        .now_ns = now_of(self),
    };
    /* Rows are objects, and making them can run code that closes the table. */
    pool_of(self)->table->uses++;
    if (listing.list != NULL && listing.none != NULL)
        stint_pool_each(pool_of(self)->pool, listing.now_ns, list_key, &listing);
    pool_of(self)->table->uses--;
    Py_XDECREF(listing.none);
    if (PyErr_Occurred())
        Py_CLEAR(listing.list);
    return listing.list;
}

static PyMethodDef methods[] = {
    {"_add", pool_add, METH_VARARGS, NULL},
    {"_remove", pool_remove, METH_VARARGS, NULL},
    {"_next", pool_next, METH_VARARGS, NULL},
    {"_report", pool_report, METH_VARARGS, NULL},
    {"_give_back", pool_give_back, METH_VARARGS, NULL},
    {"_status", pool_status, METH_VARARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_traverse, pool_traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec pool_spec = {
    .name = "stint._core.Pool",
    .basicsize = sizeof(struct pool_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
