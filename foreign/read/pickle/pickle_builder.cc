#include "foreign/read/pickle/pickle_builder.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace cairn {
namespace {

// An integer within these bounds fits beside the kind in a PickleValue.
constexpr int64_t kLeastShortInt = -(int64_t{1} << 59);
constexpr int64_t kMostShortInt = (int64_t{1} << 59) - 1;
// Texts that the document owns are stored in blocks of this size.
constexpr size_t kTextBlockBytes = size_t{64} << 10;

}  // namespace

PickleDocument PickleBuilder::Finish(PickleValue root, size_t consumed) && {
  document_.root_ = root;
  document_.consumed_ = consumed;
  return std::move(document_);
}

PickleValue PickleBuilder::Int(int64_t value) {
  if (value >= kLeastShortInt && value <= kMostShortInt) return {PickleKind::kInt, value};
  document_.wide_.push_back(value);
  return Handle(PickleKind::kWideInt, document_.wide_.size());
}

PickleValue PickleBuilder::WideInt() {
  document_.wide_.push_back(std::nullopt);
  return Handle(PickleKind::kWideInt, document_.wide_.size());
}

PickleValue PickleBuilder::Float(double value) {
  document_.floats_.push_back(value);
  return Handle(PickleKind::kFloat, document_.floats_.size());
}

PickleValue PickleBuilder::Text(std::string_view text) {
  document_.texts_.push_back(text);
  return Handle(PickleKind::kText, document_.texts_.size());
}

PickleValue PickleBuilder::Bytes(std::string_view bytes) {
  document_.texts_.push_back(bytes);
  return Handle(PickleKind::kBytes, document_.texts_.size());
}

std::string_view PickleBuilder::Keep(std::string_view text) {
  if (block_ == nullptr || text.size() > block_->capacity() - block_->size()) {
    // A long text has a block of its own, and the block that is being filled stays.
    auto fresh = std::make_unique<std::string>();
    fresh->reserve(std::max(text.size(), kTextBlockBytes));
    document_.owned_bytes_ += fresh->capacity() + sizeof(std::string);
    document_.owned_.push_back(std::move(fresh));
    std::string& block = *document_.owned_.back();
    if (text.size() < kTextBlockBytes) block_ = &block;
    block.append(text);
    return std::string_view(block).substr(0, text.size());
  }
  block_->append(text);
  return std::string_view(*block_).substr(block_->size() - text.size());
}

PickleValue PickleBuilder::OwnedBytes(std::string bytes) {
  document_.owned_.push_back(std::make_unique<std::string>(std::move(bytes)));
  const std::string& kept = *document_.owned_.back();
  document_.owned_bytes_ += kept.size() + sizeof(std::string);
  return Bytes(kept);
}

PickleValue PickleBuilder::Global(std::string_view module, std::string_view name) {
  document_.globals_.push_back({module, name});
  return Handle(PickleKind::kGlobal, document_.globals_.size());
}

PickleValue PickleBuilder::Persistent(PickleValue name) {
  document_.persistent_.push_back(name);
  return Handle(PickleKind::kPersistent, document_.persistent_.size());
}

PickleValue PickleBuilder::Object(PickleValue callable, PickleValue arguments) {
  PickleObject object;
  object.callable = callable;
  object.arguments = arguments;
  document_.objects_.push_back(object);
  return Handle(PickleKind::kObject, document_.objects_.size());
}

PickleValue PickleBuilder::Container(PickleKind kind, std::span<const PickleValue> values) {
  PickleDocument::Container container;
  container.begin = static_cast<uint32_t>(document_.cells_.size());
  container.count = static_cast<uint32_t>(values.size());
  for (const PickleValue value : values) document_.cells_.push_back(value);
  document_.containers_.push_back(container);
  return Handle(kind, document_.containers_.size());
}

void PickleBuilder::Extend(PickleValue container, std::span<const PickleValue> values) {
  if (values.empty()) return;
  auto& containers = document_.containers_;
  const auto head = static_cast<size_t>(container.payload());
  const size_t tail = containers[head].tail == PickleDocument::kLast ? head : containers[head].tail;
  const auto end = static_cast<uint32_t>(document_.cells_.size());
  const auto count = static_cast<uint32_t>(values.size());
  for (const PickleValue value : values) document_.cells_.push_back(value);
  if (containers[tail].count == 0 || containers[tail].begin + containers[tail].count == end) {
    if (containers[tail].count == 0) containers[tail].begin = end;
    containers[tail].count += count;
    return;
  }
  PickleDocument::Container part;
  part.begin = end;
  part.count = count;
  containers.push_back(part);
  containers[tail].next = static_cast<uint32_t>(containers.size() - 1);
  containers[head].tail = containers[tail].next;
}

uint64_t PickleBuilder::memory_bytes() const {
  return document_.owned_bytes_ + (document_.cells_.size() + document_.persistent_.size()) * sizeof(PickleValue) +
         document_.containers_.size() * sizeof(PickleDocument::Container) +
         document_.objects_.size() * sizeof(PickleObject) + document_.texts_.size() * sizeof(std::string_view) +
         document_.globals_.size() * 2 * sizeof(std::string_view) +
         (2 * document_.wide_.size() + document_.floats_.size()) * sizeof(double);
}

bool PickleBuilder::IsFull() const {
  return document_.cells_.size() > UINT32_MAX / 2 || document_.containers_.size() > UINT32_MAX / 2;
}

}  // namespace cairn
