// Turns names into small numbers. A mapping uses every tensor name many times, but each is hashed only once.
#ifndef CAIRN_MAPPING_SYMBOL_TABLE_H_
#define CAIRN_MAPPING_SYMBOL_TABLE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::aoa {

using Symbol = uint32_t;

// The reserved words of the language. They are interned first, so that their symbols are constants. A variable must not
// have such a name.
enum Keyword : Symbol {
  kAxis = 0,
  kFusedFfn,
  kFusedQkvOld,
  kFusedQkv,
  kNumHeads,
  kNumKeyValueGroups,
  kNumKvHeads,
  kPermute,
  kDtype,
  kSrcDtype,
  kDstDtype,
  kReshape,
  kSizes,
  kKeywordCount,
  kNothing = kKeywordCount,  // "_": the left side of an addition, the right side of a removal
};

inline bool IsKeyword(Symbol symbol) { return symbol < kKeywordCount; }

// The parts of a name on which macros act.
enum NameTrait : uint8_t {
  kHasOffsetTag = 1,     // $LAYER_ID_OFFSET
  kHasIdTag = 2,         // $LAYER_ID (and not ..._OFFSET) or $EXPERT_ID
  kHasStar = 4,          // *
  kHasTransposeTag = 8,  // ends with ^T
};

// Const methods are thread-safe; the others are not. Texts live as long as the table.
class SymbolTable {
 public:
  SymbolTable();
  SymbolTable(const SymbolTable&) = delete;
  SymbolTable& operator=(const SymbolTable&) = delete;

  void Reserve(size_t more);
  Symbol Intern(std::string_view text);
  // Does the same for many texts, several times as fast: while memory for some texts is fetched, it compares others.
  void Intern(std::span<const std::string_view> texts, std::vector<Symbol>& symbols);
  std::optional<Symbol> Find(std::string_view text) const;
  std::string_view Text(Symbol symbol) const { return {entries_[symbol].data, entries_[symbol].bytes}; }
  uint8_t Traits(Symbol symbol) const { return entries_[symbol].traits; }
  // Returns the number of symbols; all symbols are below it.
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    const char* data;
    uint32_t bytes;
    uint8_t traits;
  };

  Symbol Intern(std::string_view text, uint32_t hash);
  std::string_view Keep(std::string_view text);
  void Rehash(size_t slots);

  std::vector<Entry> entries_;
  struct Slot {
    uint32_t hash;
    uint32_t symbol_plus_1;  // 0: empty
  };
  std::vector<Slot> slots_;  // a power of two of them
  std::vector<std::unique_ptr<char[]>> chunks_;
  size_t chunk_left_ = 0;
  char* chunk_next_ = nullptr;
};

// Builds names one after the other, then interns them together.
class NameBatch {
 public:
  void Clear();
  // Append the next name here, then call End.
  std::string& text() { return text_; }
  void End() { ends_.push_back(text_.size()); }
  bool full() const { return ends_.size() >= kEnough; }
  // Returns the symbols of all names, in their order. They are valid until the next call.
  std::span<const Symbol> Intern(SymbolTable& symbols);

 private:
  static constexpr size_t kEnough = 64;

  std::string text_;
  std::vector<size_t> ends_;
  std::vector<std::string_view> names_;
  std::vector<Symbol> symbols_;
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_SYMBOL_TABLE_H_
