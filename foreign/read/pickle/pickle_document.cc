#include "foreign/read/pickle/pickle_document.h"

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Objects that Cairn knows have few attributes. Without a limit, a small pickle could refer many times to one object
// with very many attributes.
constexpr size_t kMostAttributes = 1000;

}  // namespace

std::optional<int64_t> PickleDocument::Int(PickleValue value) const {
  if (value.kind() == PickleKind::kInt) return value.payload();
  if (value.kind() == PickleKind::kWideInt) return wide_[static_cast<size_t>(value.payload())];
  return std::nullopt;
}

std::optional<bool> PickleDocument::Bool(PickleValue value) const {
  if (value.kind() != PickleKind::kBool) return std::nullopt;
  return value.payload() != 0;
}

std::optional<double> PickleDocument::Float(PickleValue value) const {
  if (value.kind() != PickleKind::kFloat) return std::nullopt;
  return floats_[static_cast<size_t>(value.payload())];
}

std::optional<std::string_view> PickleDocument::Text(PickleValue value) const {
  if (value.kind() != PickleKind::kText) return std::nullopt;
  return texts_[static_cast<size_t>(value.payload())];
}

std::optional<std::string_view> PickleDocument::Bytes(PickleValue value) const {
  if (value.kind() != PickleKind::kBytes) return std::nullopt;
  return texts_[static_cast<size_t>(value.payload())];
}

std::optional<std::string> PickleDocument::Global(PickleValue value) const {
  if (value.kind() != PickleKind::kGlobal) return std::nullopt;
  const Name& global = globals_[static_cast<size_t>(value.payload())];
  return absl::StrCat(std::string(global.module), ".", std::string(global.name));
}

bool PickleDocument::IsGlobal(PickleValue value, std::string_view module, std::string_view name) const {
  if (value.kind() != PickleKind::kGlobal) return false;
  const Name& global = globals_[static_cast<size_t>(value.payload())];
  return global.module == module && global.name == name;
}

const PickleObject* PickleDocument::Object(PickleValue value) const {
  return value.kind() == PickleKind::kObject ? &objects_[static_cast<size_t>(value.payload())] : nullptr;
}

const PickleObject* PickleDocument::Object(PickleValue value, std::string_view module, std::string_view name) const {
  const PickleObject* object = Object(value);
  return object != nullptr && IsGlobal(object->callable, module, name) ? object : nullptr;
}

std::optional<PickleValue> PickleDocument::Persistent(PickleValue value) const {
  if (value.kind() != PickleKind::kPersistent) return std::nullopt;
  return persistent_[static_cast<size_t>(value.payload())];
}

size_t PickleDocument::Size(PickleValue value) const {
  if (!IsContainer(value)) return 0;
  size_t size = 0;
  for (size_t n = static_cast<size_t>(value.payload());; n = containers_[n].next) {
    size += containers_[n].count;
    if (containers_[n].next == kLast) break;
  }
  return value.kind() == PickleKind::kDict ? size / 2 : size;
}

std::vector<PickleValue> PickleDocument::Elements(PickleValue value, size_t most) const {
  std::vector<PickleValue> elements;
  if (!IsContainer(value)) return elements;
  for (size_t n = static_cast<size_t>(value.payload());; n = containers_[n].next) {
    const Container& part = containers_[n];
    for (size_t i = 0; i < part.count; ++i) {
      if (elements.size() == most) return elements;
      elements.push_back(cells_[part.begin + i]);
    }
    if (part.next == kLast) return elements;
  }
}

size_t PickleDocument::CopyElements(PickleValue value, std::span<PickleValue> first) const {
  if (!IsContainer(value)) return 0;
  size_t count = 0;
  for (size_t n = static_cast<size_t>(value.payload());; n = containers_[n].next) {
    const Container& part = containers_[n];
    for (size_t i = 0; i < part.count; ++i) {
      if (count == first.size()) return count;
      first[count++] = cells_[part.begin + i];
    }
    if (part.next == kLast) return count;
  }
}

std::optional<PickleValue> PickleDocument::Find(PickleValue value, std::string_view key) const {
  if (const PickleObject* object = Object(value)) {
    value = object->state;
    if (Size(value) > kMostAttributes) return std::nullopt;
  }
  std::optional<PickleValue> found;
  ForEachPair(value, [&](PickleValue each, PickleValue item) {
    if (Text(each) == key) found = item;
  });
  return found;
}

std::string PickleDocument::Describe(PickleValue value) const {
  switch (value.kind()) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a bool";
    case PickleKind::kInt:
    case PickleKind::kWideInt:
      return Int(value).has_value() ? "an int" : "an int of more than 64 bits";
    case PickleKind::kFloat:
      return "a float";
    case PickleKind::kText:
      return "a str";
    case PickleKind::kBytes:
      return "bytes";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kDict:
      return "a dict";
    case PickleKind::kSet:
      return "a set";
    case PickleKind::kGlobal:
      return Global(value)->substr(0, 200);
    case PickleKind::kObject:
      // The object is rebuilt from its class, as protocol 2 writes it for enumerations and namespaces.
      if (const PickleObject* object = Object(value); object->callable.kind() == PickleKind::kGlobal) {
        const std::string callable = *Global(object->callable);
        const std::vector<PickleValue> first = Elements(object->arguments, 1);
        if (callable == "copyreg._reconstructor" && first.size() == 1 && first[0].kind() == PickleKind::kGlobal) {
          return Global(first[0])->substr(0, 200);
        }
        return callable.substr(0, 200);
      }
      return "an object";
    case PickleKind::kPersistent:
      return "a storage";
  }
  return "a value";
}

}  // namespace cairn
