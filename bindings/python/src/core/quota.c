/* SPDX-License-Identifier: MIT */
/* Quota: a parsed and checked quota. Immutable; its SPEC is its value. */
#include "core.h"

#include <string.h>

#define SPEC_MAX 512
#define TEXT_MAX 2048

static const struct stint_quota *quota_of(PyObject *self)
{
    return &((struct quota_object *)self)->quota;
}

static PyObject *quota_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"spec", NULL};
    const char *spec;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s:Quota", names, &spec))
        return NULL;
    struct core_state *state = core_state_of(type);
    if (state == NULL)
        return NULL;
    struct stint_quota quota;
    struct stint_error error;
    int code = stint_quota_parse(&quota, spec, &error);
    if (code < 0)
        return core_raise(state, code, "%s", error.message);
    struct quota_object *self = core_alloc(type);
    if (self != NULL)
        self->quota = quota;
    return (PyObject *)self;
}

static PyObject *spec_of(PyObject *self)
{
    char text[SPEC_MAX];
    stint_quota_format(quota_of(self), text, sizeof(text));
    return PyUnicode_FromString(text);
}

static PyObject *quota_repr(PyObject *self)
{
    PyObject *spec = spec_of(self);
    PyObject *text = spec != NULL ? PyUnicode_FromFormat("stint.Quota(%R)", spec) : NULL;
    Py_XDECREF(spec);
    return text;
}

static Py_hash_t quota_hash(PyObject *self)
{
    PyObject *spec = spec_of(self);
    Py_hash_t hash = spec != NULL ? PyObject_Hash(spec) : -1;
    Py_XDECREF(spec);
    return hash;
}

static PyObject *quota_compare(PyObject *self, PyObject *other, int operation)
{
    struct core_state *state = core_state_of(Py_TYPE(self));
    if (state == NULL)
        return NULL;
    int is_quota = PyObject_TypeCheck(other, state->quota_type);
    if (!is_quota || (operation != Py_EQ && operation != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    char text[2][SPEC_MAX];
    stint_quota_format(quota_of(self), text[0], SPEC_MAX);
    stint_quota_format(quota_of(other), text[1], SPEC_MAX);
    return PyBool_FromLong((strcmp(text[0], text[1]) == 0) == (operation == Py_EQ));
}

static PyObject *quota_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_BuildValue("O(N)", Py_TYPE(self), spec_of(self));
}

static PyObject *quota_texts(PyObject *self, PyObject *unused)
{
    (void)unused;
    char text[TEXT_MAX];
    PyObject *texts = PyTuple_New(ENGINE_TEXTS);
    for (int part = 0; texts != NULL && part < ENGINE_TEXTS; part++) {
        engine_text(quota_of(self), part, text, sizeof(text));
        PyObject *item = PyUnicode_FromString(text);
        if (item == NULL)
            Py_CLEAR(texts);
        else
            PyTuple_SetItem(texts, part, item);
    }
    return texts;
}

/* ---- Attributes ---- */

static PyObject *get_limit(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(quota_of(self)->limit);
}

static PyObject *get_period_ns(PyObject *self, void *unused)
{
    (void)unused;
    const struct stint_quota *quota = quota_of(self);
    bool is_held = quota->algorithm == STINT_CONCURRENCY;
    return PyLong_FromUnsignedLongLong(is_held ? quota->lease_ns : quota->period_ns);
}

static PyObject *get_period(PyObject *self, void *unused)
{
    PyObject *ns = get_period_ns(self, unused);
    double seconds = ns != NULL ? PyLong_AsDouble(ns) / 1e9 : 0;
    Py_XDECREF(ns);
    return ns != NULL ? PyFloat_FromDouble(seconds) : NULL;
}

static PyObject *get_algorithm(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(stint_algorithm_name(quota_of(self)->algorithm));
}

static PyObject *get_burst(PyObject *self, void *unused)
{
    (void)unused;
    const struct stint_quota *quota = quota_of(self);
    return PyLong_FromUnsignedLong(quota->algorithm == STINT_GCRA ? quota->burst : quota->limit);
}

static PyObject *get_strict(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(stint_is_strict(quota_of(self)));
}

static PyObject *get_max_in_any_window(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(stint_max_in_any_window(quota_of(self)));
}

static PyObject *get_state_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSize_t(stint_state_size(quota_of(self)));
}

static PyGetSetDef attributes[] = {
    {"limit", get_limit, NULL, "Units per period (concurrency: held at once).", NULL},
    {"period", get_period, NULL, "Seconds, a float (concurrency: of a lease).", NULL},
    {"period_ns", get_period_ns, NULL, "The period in nanoseconds.", NULL},
    {"algorithm", get_algorithm, NULL, "The algorithm's name, such as 'window'.", NULL},
    {"burst", get_burst, NULL, "Units that may be taken at once from idle.", NULL},
    {"strict", get_strict, NULL, "Whether no window of a period ever admits more than limit.",
     NULL},
    {"max_in_any_window", get_max_in_any_window, NULL,
     "The most units that any window of a period admits.", NULL},
    {"state_size", get_state_size, NULL, "Bytes of one key's state.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"_texts", quota_texts, METH_NOARGS, NULL},
    {"__reduce__", quota_reduce, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, quota_new},     {Py_tp_dealloc, core_free}, {Py_tp_str, spec_of},
    {Py_tp_repr, quota_repr},   {Py_tp_hash, quota_hash},   {Py_tp_richcompare, quota_compare},
    {Py_tp_getset, attributes}, {Py_tp_methods, methods},   {0, NULL},
};

PyType_Spec quota_spec = {
    .name = "stint._core.Quota",
    .basicsize = sizeof(struct quota_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
