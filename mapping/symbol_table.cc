#include "mapping/symbol_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace cairn::aoa {
namespace {

constexpr size_t kChunkBytes = 1 << 18;

constexpr std::string_view kPredefined[] = {
    "axis",         "fused_ffn", "fused_qkv_old", "fused_qkv", "num_heads", "num_key_value_groups",
    "num_kv_heads", "permute",   "dtype",         "src_dtype", "dst_dtype", "reshape",
    "sizes",        "_"};

uint32_t HashOf(std::string_view text) {
  return static_cast<uint32_t>(absl::HashOf(absl::string_view(text.data(), text.size())));
}

uint8_t TraitsOf(std::string_view text) {
  uint8_t traits = 0;
  for (size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("$LAYER_ID_OFFSET")) {
      traits |= kHasOffsetTag;
    } else if (rest.starts_with("$LAYER_ID") || rest.starts_with("$EXPERT_ID")) {
      traits |= kHasIdTag;
    }
  }
  if (text.find('*') != std::string_view::npos) traits |= kHasStar;
  if (text.ends_with("^T")) traits |= kHasTransposeTag;
  return traits;
}

}  // namespace

SymbolTable::SymbolTable() {
  slots_.resize(1024);
  for (std::string_view text : kPredefined) Intern(text);
}

std::string_view SymbolTable::Keep(std::string_view text) {
  if (text.size() > chunk_left_) {
    const size_t bytes = std::max(kChunkBytes, text.size());
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
    chunk_next_ = chunks_.back().get();
    chunk_left_ = bytes;
  }
  if (!text.empty()) std::memcpy(chunk_next_, text.data(), text.size());
  const std::string_view kept(chunk_next_, text.size());
  chunk_next_ += text.size();
  chunk_left_ -= text.size();
  return kept;
}

void SymbolTable::Rehash(size_t count) {
  std::vector<Slot> old(count);
  old.swap(slots_);
  const size_t mask = count - 1;
  for (const Slot& from : old) {
    if (from.symbol_plus_1 == 0) continue;
    size_t slot = from.hash & mask;
    while (slots_[slot].symbol_plus_1 != 0) slot = (slot + 1) & mask;
    slots_[slot] = from;
  }
}

void SymbolTable::Reserve(size_t more) {
  const size_t wanted = entries_.size() + more;
  entries_.reserve(wanted);
  size_t count = slots_.size();
  while (count < 2 * wanted) count *= 2;
  if (count > slots_.size()) Rehash(count);
}

void SymbolTable::Intern(std::span<const std::string_view> texts, std::vector<Symbol>& symbols) {
  constexpr size_t kBatch = 16;
  symbols.clear();
  symbols.reserve(texts.size());
  std::array<uint32_t, kBatch> hashes;
  while (!texts.empty()) {
    const auto batch = texts.first(std::min(kBatch, texts.size()));
    texts = texts.subspan(batch.size());
    const size_t mask = slots_.size() - 1;
    for (size_t i = 0; i < batch.size(); ++i) {
      hashes[i] = HashOf(batch[i]);
      __builtin_prefetch(&slots_[hashes[i] & mask]);
    }
    const auto likely = [&](size_t i) { return slots_[hashes[i] & mask].symbol_plus_1; };
    for (size_t i = 0; i < batch.size(); ++i) {
      if (likely(i) != 0) __builtin_prefetch(&entries_[likely(i) - 1]);
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      if (likely(i) != 0) __builtin_prefetch(entries_[likely(i) - 1].data);
    }
    for (size_t i = 0; i < batch.size(); ++i) symbols.push_back(Intern(batch[i], hashes[i]));
  }
}

Symbol SymbolTable::Intern(std::string_view text) { return Intern(text, HashOf(text)); }

Symbol SymbolTable::Intern(std::string_view text, uint32_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  for (; slots_[slot].symbol_plus_1 != 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && Text(slots_[slot].symbol_plus_1 - 1) == text)
      return slots_[slot].symbol_plus_1 - 1;
  }
  const auto symbol = static_cast<Symbol>(entries_.size());
  const std::string_view kept = Keep(text);
  entries_.push_back({kept.data(), static_cast<uint32_t>(kept.size()), TraitsOf(text)});
  slots_[slot] = {hash, symbol + 1};
  if (entries_.size() * 2 > slots_.size()) Rehash(2 * slots_.size());
  return symbol;
}

std::optional<Symbol> SymbolTable::Find(std::string_view text) const {
  const uint32_t hash = HashOf(text);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot].symbol_plus_1 != 0; slot = (slot + 1) & mask) {
    if (slots_[slot].hash == hash && Text(slots_[slot].symbol_plus_1 - 1) == text)
      return slots_[slot].symbol_plus_1 - 1;
  }
  return std::nullopt;
}

void NameBatch::Clear() {
  text_.clear();
  ends_.clear();
}

std::span<const Symbol> NameBatch::Intern(SymbolTable& symbols) {
  names_.clear();
  size_t begin = 0;
  for (size_t end : ends_) {
    names_.push_back(std::string_view(text_).substr(begin, end - begin));
    begin = end;
  }
  symbols.Intern(names_, symbols_);
  return symbols_;
}

}  // namespace cairn::aoa
