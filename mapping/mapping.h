// Builds mappings from statements. For a part of a target tensor, a mapping gives the parts of source tensors that fill
// it, and the steps that convert them. The language is Paddle's AOA ("All-in-One-Arrow"), as docs/mapping.md describes
// it.
//
//   CAIRN_ASSIGN_OR_RETURN(MappedState mapped, BuildMapping(config, source, destination));
//   std::vector<Entry> entries;
//   CAIRN_RETURN_IF_ERROR(mapped.Resolve(target, entries));
//   for (const Entry& entry : entries) Copy(entry.source_key, entry.source, mapped.steps(entry), entry.target);
#ifndef CAIRN_MAPPING_MAPPING_H_
#define CAIRN_MAPPING_MAPPING_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mapping/diagnostics.h"
#include "mapping/key_space.h"
#include "mapping/program.h"
#include "mapping/state_key.h"
#include "mapping/variables.h"

namespace cairn::aoa {

struct Config {
  std::vector<std::string> statements;  // one statement each, or several, one on each line
  bool reverse = false;                 // run the statements backwards, with their sides swapped
  bool traceback = true;                // errors show the steps by which macros made the failing statement
  bool legacy_qkv = false;              // old texts: `fused_qkv` from 1 name to 1 is rank-blocked, and
                                        // num_key_value_groups counts the query heads per KV head
  bool allow_missing = false;           // destination tensors without a source are listed, not refused
};

// A part of a target, and the part of a source that fills it. Boxes count elements of the global tensors.
struct Entry {
  Box target;
  std::string_view source_key;     // the source's weight and the target's optimizer suffix, views into the
  std::string_view source_suffix;  // mapping. Together they are the name of the stored tensor
  Box source;
  Shape source_shape;  // global
  DType source_dtype = DType::kUnspecified;
  ChainId chain = kNoSteps;
};

struct Output {
  Symbol name;
  VariableId variable;  // kNoVariable: the output has no source, because it is added or missing
  bool added = false;
  bool missing = false;
};

// The result of a mapping. It is immutable: all methods are const and thread-safe, and answers do not depend on the
// order of questions. It owns all that it needs, so the descriptions from which it was built may be destroyed.
class MappedState {
 public:
  MappedState(std::unique_ptr<const Program> program, Variables variables, std::vector<Output> outputs,
              std::vector<Symbol> removed, std::vector<bool> used_sources, std::vector<Shape> declared);

  // Returns the output names, ascending.
  std::span<const Output> outputs() const { return outputs_; }
  // Returns the output of this weight; null if there is none.
  const Output* FindOutput(std::string_view weight) const;
  std::string_view Text(Symbol symbol) const { return program_->symbols().Text(symbol); }

  // Appends the entries of `target`, which may be a part of a tensor, in the order of its variable's slices. Their
  // targets tile the box of `target`; an output that is added or missing has no entries. `target.key` may be the name
  // of an optimizer state. A state has the entries of its weight, and its dtype is not checked. A scalar state has one
  // entry, from the source with the smallest name. NOT_FOUND (MAPPING_UNKNOWN_NAME): there is no such output.
  // INVALID_ARGUMENT (MAPPING_SHAPE): the dimensions differ, or a reshape cannot cut the part; (MAPPING_DTYPE): after
  // the steps the elements have another dtype than the target. OUT_OF_RANGE (MAPPING_RANGE): the box reaches beyond the
  // variable, or the global shape is not the variable's; a transpose may be missing.
  absl::Status Resolve(const ShardDesc& target, std::vector<Entry>& entries) const;

  // Returns the steps of an entry in order. postprocess() has them as Paddle writes them: "[1, 0]", "float32",
  // "reshape:[2, 3, 4]".
  std::span<const Step> steps(const Entry& entry) const { return variables_.steps().steps(entry.chain); }
  std::span<const std::string> postprocess(const Entry& entry) const { return variables_.steps().texts(entry.chain); }

  // removed() returns the sources that a statement `name -> _` removed; unused() those that no output uses and no
  // statement removed. Both ascend.
  std::vector<std::string_view> removed() const;
  std::vector<std::string_view> unused() const;

  const Program& program() const { return *program_; }
  const Variables& variables() const { return variables_; }

 private:
  // These return the errors of Resolve.
  absl::Status NoOutput(const ShardDesc& target, std::string_view weight) const;
  absl::Status CheckFits(const ShardDesc& target, const Output& output) const;
  absl::Status CheckDtype(const ShardDesc& target, const Variables::Part& part) const;
  void ResolveScalar(const ShardDesc& target, const StateKey& key, VariableId variable,
                     std::vector<Entry>& entries) const;

  std::unique_ptr<const Program> program_;
  Variables variables_;
  std::vector<Output> outputs_;
  std::vector<uint32_t> output_of_;  // by symbol, or UINT32_MAX
  std::vector<Symbol> removed_;
  std::vector<bool> used_sources_;
  std::vector<Shape> declared_;  // by output: the global shape that the destination declares; empty if not known
};

// Builds a mapping. Without `destination`, the outputs are the whole tensors that exist after the last statement.
// Errors name the statement. The returned status has the first error and the number of errors. `errors`, if not null,
// gets the first Diagnostics::kKept errors, and `total`, if not null, their number. Time and memory are linear in
// descriptions, statements after macros, and slices.
absl::StatusOr<MappedState> BuildMapping(const Config& config, std::span<const ShardDesc> source,
                                         std::optional<std::span<const ShardDesc>> destination,
                                         std::vector<MappingError>* errors = nullptr, size_t* total = nullptr);

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_MAPPING_H_
