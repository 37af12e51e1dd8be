// Executes plain statements (those without macros) on variables.
#ifndef CAIRN_MAPPING_ENGINE_H_
#define CAIRN_MAPPING_ENGINE_H_

#include <string>
#include <vector>

#include "mapping/diagnostics.h"
#include "mapping/key_space.h"
#include "mapping/parser.h"
#include "mapping/program.h"
#include "mapping/variables.h"

namespace cairn::aoa {

// An engine runs once: Run, then Finish; then the public members hold the results. Not thread-safe.
class Engine {
 public:
  struct Result {
    Symbol name;
    VariableId variable;
    bool added;
    bool missing;
  };

  Engine(Program& program, const KeySpace& source, const KeySpace& destination, bool reverse, Diagnostics& diagnostics);

  // Executes the statements in order, or backwards with their sides swapped. If a statement fails, the names that it
  // assigns become invalid, and statements that read such names are skipped without an error of their own.
  void Run(const std::vector<Statement>& statements);

  // Finds the variable of every output. With allow_missing, destination tensors without a source are no error.
  void Finish(bool allow_missing);

  Variables variables;
  std::vector<Result> results;     // by name, ascending
  std::vector<Symbol> removed;     // names of source tensors, in the order in which they were removed
  std::vector<bool> used_sources;  // by SourceId

 private:
  static constexpr VariableId kUnset = UINT32_MAX;
  static constexpr VariableId kSpoiled = UINT32_MAX - 1;

  void Execute(const Statement& statement);
  void ExecuteOne(const Statement& statement, Symbol from, Symbol to);
  void ExecuteMany(const Statement& statement);
  absl::StatusOr<VariableId> Transform(const Statement& statement, VariableId in, Symbol to);
  absl::StatusOr<VariableId> PermuteBy(const Attribute& attribute, VariableId in);
  absl::StatusOr<VariableId> CastBy(const Statement& statement, VariableId in);

  // Returns the variable of a name, or kSpoiled after a failed statement. If there is no variable, adds the error.
  VariableId Read(const Statement& statement, Symbol name);
  void Write(Symbol name, VariableId variable);
  void Fail(LineId line, Reason reason, std::string message);
  void Fail(LineId line, const absl::Status& status, std::string_view before, std::string_view after = {});
  std::string Quoted(Symbol name) const;
  // Describes `variable`, which is called `name`: "'a' float32 (4, 8)"; for a temporary it adds the source tensors.
  std::string Described(Symbol name, VariableId variable) const;
  std::vector<Symbol> KnownNames() const;

  uint32_t LeftCount(const Statement& s) const { return reverse_ ? s.right_count : s.left_count; }
  uint32_t RightCount(const Statement& s) const { return reverse_ ? s.left_count : s.right_count; }
  Symbol Left(const Statement& s, uint32_t i) const { return reverse_ ? s.Right(program_, i) : s.Left(program_, i); }
  Symbol Right(const Statement& s, uint32_t i) const { return reverse_ ? s.Left(program_, i) : s.Right(program_, i); }

  struct Removal {
    Symbol name;
    LineId line;
  };

  Program& program_;
  const KeySpace& destination_;
  bool reverse_;
  Diagnostics& diagnostics_;
  std::vector<VariableId> inputs_;    // by symbol: the whole source tensor, or kUnset
  std::vector<VariableId> bindings_;  // by symbol: the variable that a statement assigned, or kUnset
  std::vector<bool> consumed_;        // by variable
  std::vector<Symbol> written_;       // names that statements assigned, each once
  std::vector<bool> added_;           // by symbol
  std::vector<LineId> removed_by_;    // by symbol, or kNoLine
  std::vector<Symbol> input_names_;
  // The last permutation that was read, kept because a mapping transposes thousands of tensors in the same way.
  struct {
    Symbol value = 0;
    size_t dims = 0;
    Shape axes;
    std::string text;
  } permutation_;
};

}  // namespace cairn::aoa

#endif  // CAIRN_MAPPING_ENGINE_H_
