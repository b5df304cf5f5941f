// The buffer protocol of ndarray and of NumPy's void scalars, which point into arrays. Host code.
//
// Whoever gets a Py_buffer may hand its pointer to the kernel (file.write, recv_into) at any time until release, so the
// block is pinned to the host for that long; read-only requests too. To learn of the release, view->obj becomes a
// BufferExport that keeps the array: ndarray itself must stay without bf_releasebuffer, or `y#` and `s#` argument
// parsing would refuse it. memoryview.obj shows the array again.
#include <string_view>
#include <utility>

#include "compat/pyref.h"
#include "shim/door_parts.h"

namespace gpushim::shim {
namespace {

using compat::PyRef;
using compat::steal;

/// What a Py_buffer holds in place of its exporter.
struct BufferExport {
  PyObject_HEAD PyObject* exporter;
  gpu::Block* block;  ///< null once the buffer was released
};

PyTypeObject* export_type = nullptr;

BufferExport* as_export(PyObject* self) { return reinterpret_cast<BufferExport*>(self); }

void drop_pin(BufferExport* self) noexcept {
  if (gpu::Block* block = std::exchange(self->block, nullptr)) unpin(block);
}

/// PickleBuffer and Cython ask view->obj for buffers of its own.
int export_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  return PyObject_GetBuffer(as_export(self)->exporter, view, flags);
}

void export_releasebuffer(PyObject* self, Py_buffer*) { drop_pin(as_export(self)); }

PyObject* export_getattro(PyObject* self, PyObject* name) { return PyObject_GetAttr(as_export(self)->exporter, name); }

int export_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_export(self)->exporter);
  return 0;
}

void export_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  drop_pin(as_export(self));  // somebody dropped view->obj without a release
  Py_XDECREF(as_export(self)->exporter);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

template <class Function>
void* slot(Function* function) {
  return reinterpret_cast<void*>(function);
}

bool make_export_type() {
  PyType_Slot slots[] = {{Py_tp_dealloc, slot(export_dealloc)},
                         {Py_tp_traverse, slot(export_traverse)},
                         {Py_tp_getattro, slot(export_getattro)},
                         {Py_bf_getbuffer, slot(export_getbuffer)},
                         {Py_bf_releasebuffer, slot(export_releasebuffer)},
                         {0, nullptr}};
  PyType_Spec spec = {"gpushim._shim.BufferExport", sizeof(BufferExport), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  export_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return export_type != nullptr;
}

/// The buffer was filled by the exporter itself; pins its block and takes over view->obj.
int pin_until_release(Py_buffer* view) {
  gpu::Block* block = block_at(view->buf, static_cast<std::size_t>(view->len));
  if (!block || !view->obj) return 0;
  auto* proxy = PyObject_GC_New(BufferExport, export_type);
  if (!proxy) {
    PyBuffer_Release(view);
    return -1;
  }
  proxy->exporter = view->obj;
  proxy->block = block;
  pin(block);
  view->obj = reinterpret_cast<PyObject*>(proxy);
  PyObject_GC_Track(view->obj);
  return 0;
}

getbufferproc array_getbuffer = nullptr;
getbufferproc void_getbuffer = nullptr;

int hooked_array_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  return array_getbuffer(self, view, flags) < 0 ? -1 : pin_until_release(view);
}

int hooked_void_getbuffer(PyObject* self, Py_buffer* view, int flags) {
  return void_getbuffer(self, view, flags) < 0 ? -1 : pin_until_release(view);
}

getter memoryview_obj = nullptr;

PyObject* hooked_memoryview_obj(PyObject* self, void* closure) {
  PyObject* obj = memoryview_obj(self, closure);
  if (!obj || !Py_IS_TYPE(obj, export_type)) return obj;
  PyRef proxy = steal(obj);
  return Py_NewRef(as_export(obj)->exporter);
}

/// Swaps the slot in a type and in all its subclasses: each heap type has a copy. Python 3.12 and later also have a
/// wrapper of it, `__buffer__`, from which classes created later take their slot.
bool patch_type(PatchList& patches, PyTypeObject* type, getbufferproc original, getbufferproc hook) {
  if (type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer == original) {
    patches.swap(&type->tp_as_buffer->bf_getbuffer, hook, "bf_getbuffer");
  }
  if (PyObject* wrapper = type->tp_dict ? PyDict_GetItemString(type->tp_dict, "__buffer__") : nullptr;
      wrapper && Py_IS_TYPE(wrapper, &PyWrapperDescr_Type)) {
    auto* descriptor = reinterpret_cast<PyWrapperDescrObject*>(wrapper);
    if (descriptor->d_wrapped == slot(original)) patches.swap(&descriptor->d_wrapped, slot(hook), "__buffer__");
  }
  PyRef subclasses = steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyType_Type), "__subclasses__", "O", type));
  if (!subclasses) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(subclasses.get()); ++i) {
    PyObject* subclass = PyList_GET_ITEM(subclasses.get(), i);
    if (!patch_type(patches, reinterpret_cast<PyTypeObject*>(subclass), original, hook)) return false;
  }
  return true;
}

}  // namespace

bool install_buffer_door(PatchList& patches) {
  if (!make_export_type()) return false;
  for (PyGetSetDef* entry = PyMemoryView_Type.tp_getset; entry && entry->name; ++entry) {
    if (std::string_view(entry->name) != "obj") continue;
    memoryview_obj = entry->get;
    patches.swap(&entry->get, &hooked_memoryview_obj, "memoryview.obj");
  }
  array_getbuffer = PyArray_Type.tp_as_buffer->bf_getbuffer;
  void_getbuffer = PyVoidArrType_Type.tp_as_buffer->bf_getbuffer;
  return patch_type(patches, &PyArray_Type, array_getbuffer, hooked_array_getbuffer) &&
         patch_type(patches, &PyVoidArrType_Type, void_getbuffer, hooked_void_getbuffer);
}

}  // namespace gpushim::shim
