/* SPDX-License-Identifier: MIT */
/* The module: its exceptions and types, and how functions read arguments. */
#include "core.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S 1e9

/* ---- Objects ---- */

void *core_alloc(PyTypeObject *type)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

void core_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---- Errors ---- */

static PyObject *exception_of(const struct core_state *state, int code)
{
    switch (code) {
    case STINT_E_SYNTAX:
    case STINT_E_RANGE:
    case STINT_E_MISMATCH:
        return state->quota_error;
    case STINT_E_GONE:
        return state->gone_error;
    default:
        return state->table_error;
    }
}

static void set_exception(PyObject *type, int code, const char *text)
{
    /* A path, or a message that was cut, may be no UTF-8. */
    PyObject *message = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "backslashreplace");
    PyObject *error = message != NULL ? PyObject_CallFunctionObjArgs(type, message, NULL) : NULL;
    Py_XDECREF(message);
    if (error == NULL)
        return;
    PyObject *name = PyUnicode_FromString(stint_code_name(code));
    if (name != NULL && PyObject_SetAttrString(error, "code", name) == 0)
        PyErr_SetObject(type, error);
    Py_XDECREF(name);
    Py_DECREF(error);
}

void *core_raise(const struct core_state *state, int code, const char *message, ...)
{
    assert(code < 0);
    char text[2 * STINT_ERROR_MAX];
    va_list args;
    va_start(args, message);
    vsnprintf(text, sizeof(text), message, args);
    va_end(args);
    set_exception(exception_of(state, code), code, text);
    return NULL;
}

void *core_raise_table(const struct core_state *state, int code, const char *message)
{
    assert(code < 0);
    set_exception(state->table_error, code, message);
    return NULL;
}

/* ---- Arguments ---- */

static int place_of(const struct core_signature *signature, PyObject *keyword)
{
    for (int i = 0; i < signature->n_names; i++)
        if (PyUnicode_CompareWithASCIIString(keyword, signature->names[i]) == 0)
            return i;
    return -1;
}

static bool sort_keywords(const struct core_signature *signature, PyObject *const *args,
                          PyObject *keywords, PyObject **values)
{
    Py_ssize_t n = PyTuple_Size(keywords);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        int place = place_of(signature, keyword);
        if (place < 0 || values[place] != NULL) {
            PyErr_Format(PyExc_TypeError, "%s() got %s argument '%U'", signature->function,
                         place < 0 ? "an unexpected keyword" : "multiple values for", keyword);
            return false;
        }
        values[place] = args[i];
    }
    return true;
}

bool core_arguments(const struct core_signature *signature, PyObject *const *args, Py_ssize_t n,
                    PyObject *keywords, PyObject **values)
{
    if (n > signature->n_names) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d arguments (%zd given)",
                     signature->function, signature->n_names, n);
        return false;
    }
    for (int i = 0; i < signature->n_names; i++)
        values[i] = i < n ? args[i] : NULL;
    if (keywords != NULL && !sort_keywords(signature, args + n, keywords, values))
        return false;
    for (int i = 0; i < signature->required; i++) {
        if (values[i] == NULL) {
            PyErr_Format(PyExc_TypeError, "%s() misses the argument '%s'", signature->function,
                         signature->names[i]);
            return false;
        }
    }
    return true;
}

/* Text with lone surrogates, which has no UTF-8: distinct texts must stay distinct keys. */
static bool key_of_surrogates(PyObject *text, struct core_key *key)
{
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
        return false;
    PyErr_Clear();
    key->owned = PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass");
    if (key->owned == NULL)
        return false;
    key->bytes = PyBytes_AsString(key->owned);
    key->len = PyBytes_Size(key->owned);
    return true;
}

bool core_key(PyObject *value, struct core_key *key)
{
    key->owned = NULL;
    if (PyUnicode_Check(value)) {
        key->bytes = PyUnicode_AsUTF8AndSize(value, &key->len);
        return key->bytes != NULL || key_of_surrogates(value, key);
    }
    if (PyBytes_Check(value)) {
        key->bytes = PyBytes_AsString(value);
        key->len = PyBytes_Size(value);
        return true;
    }
    PyErr_Format(PyExc_TypeError, "a key is str or bytes, not %R", Py_TYPE(value));
    return false;
}

bool core_number(const struct core_state *state, PyObject *value, const char *name, uint64_t max,
                 uint64_t *number)
{
    assert(max <= INT64_MAX);
    long long given = PyLong_AsLongLong(value);
    if (given >= 0 && (uint64_t)given <= max) {
        *number = (uint64_t)given;
        return true;
    }
    if (given == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return false;
        PyErr_Clear();
    }
    char text[64] = "";
    PyObject *shown = PyObject_Str(value);
    const char *digits = shown != NULL ? PyUnicode_AsUTF8AndSize(shown, NULL) : NULL;
    snprintf(text, sizeof(text), "%s", digits != NULL ? digits : "too large");
    PyErr_Clear();
    Py_XDECREF(shown);
    core_raise(state, STINT_E_RANGE, "%s is %s; expected 0 to %llu", name, text,
               (unsigned long long)max);
    return false;
}

bool core_seconds(const struct core_state *state, PyObject *value, const char *name,
                  uint64_t max_ns, uint64_t *ns)
{
    double seconds = PyFloat_AsDouble(value);
    if (seconds == -1.0 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return false;
        PyErr_Clear();
        seconds = INFINITY;
    }
    if (!(seconds >= 0 && seconds <= (double)max_ns / NS_PER_S)) {
        core_raise(state, STINT_E_RANGE, "%s is %g s; expected 0 to %.0f s", name, seconds,
                   (double)max_ns / NS_PER_S);
        return false;
    }
    double rounded = floor(seconds * NS_PER_S + 0.5);
    *ns = rounded < (double)max_ns ? (uint64_t)rounded : max_ns;
    return true;
}

/* ---- The module ---- */

static PyObject *new_exception(PyObject *module, const char *name, const char *doc, PyObject *base,
                               PyObject *second)
{
    char whole_name[64];
    snprintf(whole_name, sizeof(whole_name), "stint.%s", name);
    PyObject *bases = second != NULL ? PyTuple_Pack(2, base, second) : PyTuple_Pack(1, base);
    if (bases == NULL)
        return NULL;
    PyObject *type = PyErr_NewExceptionWithDoc(whole_name, doc, bases, NULL);
    Py_DECREF(bases);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return type;
}

static int add_exceptions(PyObject *module, struct core_state *state)
{
    state->error = new_exception(
        module, "Error",
        "An error of the engine. `code` is its name: SYNTAX, RANGE, MISMATCH, FULL, GONE, SYSTEM,\n"
        "CORRUPT, VERSION or BUSY.",
        PyExc_Exception, NULL);
    if (state->error == NULL)
        return -1;
    state->quota_error =
        new_exception(module, "QuotaError",
                      "A quota, a value or a call that cannot be: SYNTAX, RANGE or MISMATCH.",
                      state->error, PyExc_ValueError);
    state->gone_error =
        new_exception(module, "GoneError",
                      "A reservation or a pool's key that is not there: used, expired or never.",
                      state->error, PyExc_LookupError);
    state->table_error = new_exception(module, "TableError",
                                       "A table that cannot be opened, or that is full or closed.",
                                       state->error, PyExc_OSError);
    return state->quota_error && state->gone_error && state->table_error ? 0 : -1;
}

static int add_types(PyObject *module, struct core_state *state)
{
    const struct {
        PyTypeObject **type;
        PyType_Spec *spec;
    } types[] = {
        {&state->quota_type, &quota_spec}, {&state->decision_type, &decision_spec},
        {&state->table_type, &table_spec}, {&state->limiter_type, &limiter_spec},
        {&state->pool_type, &pool_spec},   {&state->count_type, &count_spec},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        *types[i].type = (PyTypeObject *)PyType_FromModuleAndSpec(module, types[i].spec, NULL);
        if (*types[i].type == NULL || PyModule_AddType(module, *types[i].type) < 0)
            return -1;
    }
    return 0;
}

static int execute(PyObject *module)
{
    struct core_state *state = PyModule_GetState(module);
    static const char *const names[OUTCOMES] = {"allow", "deny", "never"};
    for (int i = 0; i < OUTCOMES; i++)
        if ((state->outcome_names[i] = PyUnicode_InternFromString(names[i])) == NULL)
            return -1;
    if (add_exceptions(module, state) < 0 || add_types(module, state) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", stint_version());
}

#define REFERENCES (offsetof(struct core_state, tables) / sizeof(PyObject *))

static int visit_module(PyObject *module, visitproc visit, void *arg)
{
    struct core_state *state = PyModule_GetState(module);
    PyObject **references = (PyObject **)state;
    for (size_t i = 0; i < REFERENCES; i++)
        Py_VISIT(references[i]);
    return 0;
}

static int clear_module(PyObject *module)
{
    struct core_state *state = PyModule_GetState(module);
    PyObject **references = (PyObject **)state;
    for (size_t i = 0; i < REFERENCES; i++)
        Py_CLEAR(references[i]);
    return 0;
}

static void free_module(void *module)
{
    decision_counts_leave(PyModule_GetState(module));
    clear_module(module);
}

/*
 * From 3.12 on a module declares that interpreters with locks of their own may import it. The
 * stable interface of 3.10 has no name for the slot, and Python 3.11 refuses slots that it does not
 * know. Free-threaded Python: no slot, so that it takes its lock back while the module is used.
 */
#define SLOT_OF_INTERPRETERS 3
#define LOCK_PER_INTERPRETER ((void *)2)

static PyMethodDef functions[] = {
    {"_forget_decisions", decision_counts_forget, METH_NOARGS, NULL},
    {0},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};
static PyModuleDef_Slot slots_of_3_12[] = {
    {Py_mod_exec, execute},
    {SLOT_OF_INTERPRETERS, LOCK_PER_INTERPRETER},
    {0, NULL},
};

#define CORE_MODULE(slots)                                                                         \
    {                                                                                              \
        PyModuleDef_HEAD_INIT,                                                                     \
            .m_name = "stint._core", .m_doc = "The engine of stint: see the module stint.",        \
            .m_size = sizeof(struct core_state), .m_methods = functions, .m_slots = (slots),       \
            .m_traverse = visit_module, .m_clear = clear_module, .m_free = free_module,            \
    }
static PyModuleDef module_def = CORE_MODULE(slots);
static PyModuleDef module_def_of_3_12 = CORE_MODULE(slots_of_3_12);

static bool has_interpreters_slot(void)
{
    int minor = 0;
    return sscanf(Py_GetVersion(), "3.%d", &minor) == 1 && minor >= 12;
}

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(has_interpreters_slot() ? &module_def_of_3_12 : &module_def);
}

struct core_state *core_state_of(PyTypeObject *type)
{
    while (type != NULL) {
        PyObject *module = PyType_GetModule(type);
        PyModuleDef *def = module != NULL ? PyModule_GetDef(module) : NULL;
        if (def == &module_def || def == &module_def_of_3_12)
            return PyModule_GetState(module);
        PyErr_Clear();
        type = PyType_GetSlot(type, Py_tp_base);
    }
    PyErr_SetString(PyExc_TypeError, "not a type of stint");
    return NULL;
}
