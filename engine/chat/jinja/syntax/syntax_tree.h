// The syntax tree of a Jinja program.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_SYNTAX_TREE_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_SYNTAX_TREE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace megatrain::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

// A literal. nullptr is none.
using Literal = std::variant<std::nullptr_t, bool, int64_t, double, std::string>;

// Arguments of a call, a filter or a test: (a, b, name=c, *d, **e).
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *d, or null
  ExpressionPtr more_named;       // **e, or null
};

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

// `kind` tells which of the members behind `height` are used.
struct Expression {
  enum class Kind {
    kLiteral,      // `index` of Syntax::literals
    kName,         // `index` of Syntax::names
    kList,         // [parts...]
    kTuple,        // (parts...)
    kDict,         // {parts[0]: parts[1], ...}
    kNot,          // not parts[0]
    kNegate,       // -parts[0]
    kPlus,         // +parts[0]
    kAnd,          // parts[0] and parts[1]
    kOr,           // parts[0] or parts[1]
    kArithmetic,   // parts[0] operators[0] parts[1]
    kCompare,      // parts[0] operators[0] parts[1] operators[1] parts[2] ...
    kConcat,       // parts[0] ~ parts[1] ~ ...
    kConditional,  // parts[1] if parts[0] else parts[2]; parts[2] may be null
    kAttribute,    // parts[0].text
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0]:parts[1]:parts[2], each may be null; only as parts[1] of kItem
    kCall,         // parts[0](arguments)
    kFilter,       // parts[0]|text(arguments); parts[0] is null for the text of a block
    kTest,         // parts[0] is text(arguments)
  };
  Kind kind;
  int line;
  int height = 1;  // levels of the tree beneath, with this one
  int index = 0;
  std::string text;
  std::vector<ExpressionPtr> parts;
  std::vector<Operator> operators;
  std::unique_ptr<CallArguments> arguments;
};

// The left side of an assignment: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  int name = 0;           // index of Syntax::names
  std::string attribute;  // not empty for name.attribute
  bool is_tuple = false;
  std::vector<Target> parts;  // of a tuple
};

// The parameters and body of a macro, a call block or a generation block.
struct MacroDefinition {
  std::string name;  // "" for a block
  std::vector<std::string> parameters;
  std::vector<int> parameter_names;     // indices of Syntax::names
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  // True if the body names these special variables. Without varargs and kwargs, arguments beyond
  // the parameters are refused.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

// `kind` tells which of the members behind `line` are used.
struct Statement {
  enum class Kind {
    kData,         // `text`
    kOutput,       // {{ expression }}
    kPrint,        // print values...
    kIf,           // branches; else_body
    kFor,          // for target in expression if condition; body; else_body; `recursive`
    kSet,          // set target = expression
    kSetBlock,     // set target | expression (filters or null) %} body
    kMacro,        // macro, stored as targets[0]
    kCallBlock,    // call(macro's parameters) expression, a kCall; macro's body
    kFilterBlock,  // filter expression %} body
    kWith,         // with targets = values; body
    kBlock,        // block `text`; body; `scoped`
    kGeneration,   // generation; macro's body
    kAutoescape,   // autoescape expression; body
    kBreak,
    kContinue,
    kUnavailable,  // `text`, a tag that needs other templates
  };
  Kind kind;
  int line;
  std::string text;
  ExpressionPtr expression;
  ExpressionPtr condition;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
  Body body, else_body;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
  bool scoped = false;
};

// A parsed program. Names and literals are numbered, so that they are prepared once.
struct Syntax {
  Body body;
  std::vector<std::string> names;
  std::vector<Literal> literals;
  // The names that occur as variables or keyword arguments (`variables`), and as attributes or
  // whole string literals (`keys`).
  std::set<std::string, std::less<>> variables, keys;
  bool has_generation = false;
};

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_SYNTAX_SYNTAX_TREE_H_
