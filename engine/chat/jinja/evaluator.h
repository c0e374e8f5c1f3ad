// Renders a Jinja program by evaluating its syntax tree.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_EVALUATOR_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_EVALUATOR_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/chat/jinja/jinja_program.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/chat/jinja/syntax/syntax_tree.h"

namespace megatrain::jinja {

// A parsed program, ready to be rendered. JinjaProgram::Parse makes it. It does not change, so that
// several threads may share it.
struct Program {
  Syntax syntax;
  std::vector<JinjaValue> literals;   // the values of Syntax::literals
  std::vector<JinjaValue> functions;  // by name index; undefined if no function has the name
  int loop_name = -1;                 // the indices in Syntax::names, or -1 if not named
  int varargs_name = -1, kwargs_name = -1, caller_name = -1;
};

// The variables of a block. A name is looked up here, then in `parent`, and so on outwards. Set
// changes this scope only.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  void Set(int name, JinjaValue value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, JinjaValue>> variables;  // by name index
};

// One rendering. Used by one thread.
class Evaluator {
 public:
  // `program` and `runtime` must outlive the evaluator. `variables` are copied. Values made during
  // Render point to the evaluator, and must not be called after it is destroyed.
  Evaluator(const Program& program, const JinjaVariables& variables, Runtime* runtime);

  // Renders the program, with the errors of JinjaProgram::Render. Call it once.
  absl::StatusOr<JinjaRendered> Render();

  // The objects Macro and Loop (macro_evaluator.cc) call these three back when the program calls a
  // macro or loop(...), or a loop goes on to its next item. `closure` is the scope around the macro
  // or loop. Errors are without a line, which Render adds. REQUIRES: Render runs.

  // Runs the body of a macro. Returns the text that it writes, or its first error. Returns
  // InvalidArgument for arguments that the macro does not take.
  Result CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                   CallValues values);
  // Runs a recursive loop over `iterable`. Returns the text that it writes, or its first error.
  // Returns InvalidArgument for an `iterable` that is not iterable. `depth` is 0 for the loop
  // statement itself, 1 for its first recursive call, and so on.
  Result CallLoop(const Statement& loop, const std::shared_ptr<Scope>& closure,
                  const JinjaValue& iterable, int depth);
  // Takes items from `cursor` until the loop's condition holds for one. Returns that item, nullopt
  // at the end, or an error of the cursor, of the condition, or of unpacking an item into the
  // loop's variables. REQUIRES: loop.condition is not null.
  absl::StatusOr<std::optional<JinjaValue>> NextSelected(const Statement& loop,
                                                         const std::shared_ptr<Scope>& closure,
                                                         Cursor* cursor);

 private:
  // The statement that ended a body early.
  enum class Flow { kNone, kBreak, kContinue };

  // Expressions.
  Result Evaluate(const Expression& expression);
  Result EvaluateNode(const Expression& expression);
  Result EvaluateName(int name);
  Result EvaluateDict(const Expression& expression);
  Result EvaluateCompare(const Expression& expression);
  Result EvaluateConcat(const Expression& expression);
  Result EvaluateConditional(const Expression& expression);
  Result EvaluateItem(const Expression& expression);
  Result EvaluateCall(const Expression& expression, JinjaValue* caller);
  Result EvaluateFilter(const Expression& expression);
  Result EvaluateTest(const Expression& expression);
  absl::StatusOr<std::vector<JinjaValue>> EvaluateAll(const std::vector<ExpressionPtr>& parts);
  absl::StatusOr<CallValues> EvaluateArguments(const CallArguments& arguments);

  // Statements.
  absl::Status Run(const Body& body);
  absl::Status RunStatement(const Statement& statement);
  absl::Status RunInner(const Body& body);  // in a scope of its own
  absl::Status RunIf(const Statement& statement);
  absl::Status RunFor(const Statement& statement);
  absl::Status RunLoop(const Statement& statement, const JinjaValue& iterable, int depth);
  absl::Status RunSet(const Statement& statement);
  absl::Status RunSetBlock(const Statement& statement);
  absl::Status RunCallBlock(const Statement& statement);
  absl::Status RunFilterBlock(const Statement& statement);
  absl::Status RunWith(const Statement& statement);
  absl::Status RunBlock(const Statement& statement);
  absl::Status RunGeneration(const Statement& statement);
  absl::Status RunAutoescape(const Statement& statement);
  absl::Status Assign(const Target& target, const JinjaValue& value);
  Result MakeMacro(const MacroDefinition& macro);
  absl::Status BindParameters(const MacroDefinition& macro, CallValues values);
  // Writes to a buffer what `write` writes to the output, and returns it.
  Result Capture(absl::FunctionRef<absl::Status()> write);
  absl::Status Output(const JinjaValue& value);
  absl::Status Append(std::string_view text);
  // Appends the result of a block, which must be text.
  absl::Status AppendResult(const JinjaValue& value);

  const Program& program_;
  Runtime& runtime_;
  std::vector<JinjaValue> context_;  // functions and the caller's variables, by name index
  const std::shared_ptr<Scope> root_;
  std::shared_ptr<Scope> scope_;
  JinjaRendered rendered_;
  std::string* out_;       // rendered_.text, or the buffer of a capture
  JinjaValue block_text_;  // the input of the filter of a block
  Flow flow_ = Flow::kNone;
  int depth_ = 0;
  // The noted beginnings and the texts of {% generation %} blocks within captures.
  std::vector<std::pair<size_t, JinjaValue>> captured_blocks_;
  // The line for errors: of the node that was begun last, or of the call whose arguments are done.
  int line_ = 1;
};

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_EVALUATOR_H_
