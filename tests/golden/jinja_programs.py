"""Small Jinja programs for make_chat_template_references.py, a few for each feature of the language."""

# The variables that the programs see.
VARIABLES = {
    "s": "Hello, World", "u": "Grüße, 你好 😀é", "n": 42, "z": 0, "neg": -7, "f": 3.5, "big": 9007199254740993,
    "yes": True, "no": False, "nothing": None, "empty": [], "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 1, "a": [1, {"x": "y"}], "C": None, "items": "an item", "é\"'\\\n": 0.1},
    "users": [{"name": "Zoe", "age": 31, "city": "Rome", "ok": True}, {"name": "adam", "age": 25, "city": "Oslo"},
              {"name": "Bob", "age": 25, "city": "rome", "ok": False, "tags": ["x", "y"]}],
    "messages": [{"role": "system", "content": "Be nice."}, {"role": "user", "content": " Hi "},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello!"}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
}

# Written as {{ EXPRESSION }}.
EXPRESSIONS = r"""
1
-1
1 + 2 * 3
(1 + 2) * 3
7 / 2
8 / 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
2 ** 10
-2 ** 2
2 ** -1
2 ** 3 ** 2
2.5 ** 2
0 ** -1
1 / 0
1 // 0
1 % 0
1.0 / 0
9223372036854775807
yes + 1
yes + yes
1.0
1e16
1e15
123456789012345678.0
1e-5
0.0001
1.5e300 * 1e10
0.1 + 0.2
1e400
-0.0
3.0 * 2
1_000
0x1F
0b101
0o17
1_0.2_5
10 // 0.3
5 * 'ab'
'ab' * 0
'ab' * -3
[1, 2] * 2
2 * (1, 2)
[1] + [2]
(1,) + (2, 3)
'a' + 'b'
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
1 ~ 2 + 3
'a' 'b' "c"
"it's"
'say "hi"'
['it\'s', "say \"hi\"", 'both \' and "']
'\x41\u00e9\U0001F600\101\n\t\\|\d\q'
'\N{BULLET}'
'\é'
'\ud800'
'\x4'
'\u12'
['\x00\x7f\x80\u200b\ufeff\U000e0001é😀']
'tab\there'
not true
not not 1
not 0 and 1
1 and 2
0 and 2
0 or 'x'
'' or [] or none
none and 1
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' == 'a'
'a' != 'b'
[1, 2] == [1, 2]
[1, 2] == (1, 2)
{'a': 1} == {'a': 1.0}
none == false
nope == nope2
nope == ''
nope == none
nope != 1
1 < 'a'
none < 1
[1, 2] < [1, 3]
(1, 2) >= (1, 2)
[1] < [1, 2]
'Z' < 'a'
'é' > 'z'
1 < 2 == true
big == big + 0.0
1 in [1, 2]
'a' in 'abc'
'' in 'abc'
1 in 'abc'
'b' in d
'x' not in d
[1] in d
3 in l
not 3 in l
not (3 in l)
1 in 5
none in [none]
1 in nope
1 in range(3)
'x' in ('x', 'y')
1 if yes else 2
1 if no else 2
1 if no
(1 if no) is defined
1 if no else 2 if no else 3
'a' if 1 == 2 else 'b' ~ 'c'
(1, 2, 3)
(1,)
()
1, 2
[1, 2, ]
{'a': 1, 'b': [1, 2], 3: (4,)}
{'a': 1, 'a': 2}
{1: 'int', 1.0: 'float', true: 'bool'}
{[1]: 2}
{}
{'a': {'b': {}}}
[none, true, false, 1.0, 'x', nope]
d
d.b
d.a[1].x
d['a'][0]
d.a.1.x
d.items
d['items']
d.nope
d.nope is defined
d.nope.x
d['nope']['x']
nope
nope.x
nope['x']
nope()
nope + 1
'a' + nope
-nope
nope ~ 'x'
nope|length
nope|list
nope and 1
nope is defined
none.x
none['x']
none.x.y
(1).x
s[0]
s[-1]
s[100]
s[100] is defined
s[1:4]
s[:-1]
s[::-1]
s[::2]
s[-3:]
s[5:2]
s[10:0:-3]
s[100:]
s[:100]
s[::0]
s['a':]
u[0:4]
u[::-1]
u[8]
u|length
u[-2:]
l[0]
l[-1]
l[3]
l[1:]
l[::-1]
l[:-1]
l[-2::-1]
l[10:20]
l['0']
l[1.0]
l[true]
(1, 2, 3)[1:]
(1,2)[5]
d[0]
d[1:2]
none[0]
42[0]
n[1:]
nothing[1:]
d.items()[1:]
range(5)
range(5)|list
range(2, 5)|list
range(5, 0, -2)|list
range(0)
range(1, 10, 3)
range(10)[2:5]
range(10)[::-2]|list
range(5)[-1]
range(5)|length
range(100001)|length
range(100000)|length
range(1000000000000)
range('a')
range(1.5)
range(1, 2, 0)
range()
range(3) == range(3)
range(3) == [0, 1, 2]
dict(a=1, b=2)
dict({'x': 1}, y=2)
dict([('a', 1), ['b', 2]])
dict()
dict(1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace({'q': 2}, a=1)
namespace(_x=1)
cycler(1, 2).next()
cycler()
joiner('-')()
x is defined
s is string
n is number
yes is number
yes is integer
n is integer
f is float
f is integer
none is none
nothing is none
nope is none
nope is undefined
l is sequence
s is sequence
d is sequence
n is sequence
d is mapping
l is mapping
l is iterable
n is iterable
nope is iterable
nope is sequence
nope is callable
range is callable
s is callable
s.upper is callable
s.upper()
yes is boolean
1 is boolean
yes is true
1 is true
no is false
3 is odd
3 is even
2.0 is even
'a' is odd
9 is divisibleby 3
9 is divisibleby(4)
9 is divisibleby 0
3 is in [1, 3]
'a' is in 'abc'
1 is eq 1
1 is equalto(1)
1 is ne 2
1 is lt 2
1 is greaterthan 2
1 is ge 1
1 is le 0
'a' is lower
'A' is upper
'Ab' is upper
'' is lower
'1' is lower
1 is lower
x is not defined
1 is not none
none is sameas none
l is sameas l
[1] is sameas [1]
1 is sameas 1.0
true is sameas 1
'upper' is filter
'nofilter' is filter
'defined' is test
s is escaped
(s|safe) is escaped
1 is nosuchtest
s|nosuchfilter
1 is string is true
1 is defined and 2 is defined
1 is defined == true
-1|abs
(-1)|abs
-3.5|abs
'a'|abs
nope|abs
true|abs
s|upper
s|lower
'hello wORLD'|capitalize
'hello-wORLD foo(bar)baz'|title
'straße ﬁ ǆ'|upper
'straße ﬁ ǆ'|title
'ǆa ŉ'|capitalize
'ΑΣ ΑΣΑ'|lower
'İ'|lower|length
none|upper
12|upper
[1,'a']|lower
'  x '|trim
'xxaxx'|trim('x')
'\u00a0\u2003x\u3000\x1c'|trim
none|trim
nope|trim
s|replace('l', 'L')
s|replace('l', 'L', 1)
s|replace('', '-')
12321|replace(2, 'x')
none|replace('None', 'y')
s|length
l|count
d|length
n|length
none|length
'a,b'.split(',')|length
l|first
l|last
empty|first
empty|last
'abc'|first
'abc'|last
u|last
d|first
d|last
none|first
n|last
l|join
l|join(', ')
l|join(1)
words|join('|')
users|join(', ', attribute='name')
s|join('-')
d|join(',')
none|join
[1, none, true, nope]|join('/')
l|sort
l|sort(reverse=true)
words|sort
words|sort(case_sensitive=true)
words|sort(true, true)
users|sort(attribute='age')|map(attribute='name')|list
users|sort(attribute='age,name')|map(attribute='name')|list
users|sort(attribute='age', reverse=true)|map(attribute='name')|join(',')
[1, 'a']|sort
[none, none]|sort
[none, 1]|sort
'hello'|sort
d|sort
words|unique|list
words|unique(true)|list
[1, 1.0, true, 2]|unique|list
[[1]]|unique|list
users|unique(attribute='age')|map(attribute='name')|list
l|min
l|max
empty|min
words|min
words|max(case_sensitive=true)
users|max(attribute='age')
[1, 'a']|max
l|sum
empty|sum
[1.5, 2]|sum
users|sum(attribute='age')
l|sum(start=10)
['a']|sum
[[1],[2]]|sum(start=[])
l|reverse|list
'abc'|reverse
u|reverse
none|reverse
d|reverse|list
l|list
s|list
d|list
none|list
(1, 2)|list
{'a': 1}.items()|list
d|items|list
nope|items|list
none|items|list
d|dictsort
d|dictsort(true)
{'b': 1, 'a': 2}|dictsort(false, 'value')
{'b': 1, 'a': 2}|dictsort(reverse=true)
{1: 2, 'a': 3}|dictsort
{'b': 1}|dictsort(by='x')
[1,2,3,4,5]|batch(2)|list
[1,2,3,4,5]|batch(2, 0)|list
[1,2,3,4,5]|slice(2)|list
[1,2,3,4,5]|slice(3, 'x')|list
l|slice(0)|list
users|map(attribute='name')|list
users|map(attribute='ok')|list
users|map(attribute='ok', default='?')|list
users|map(attribute='tags.0')|list
users|map(attribute='tags.0')|map('default', 'no')|list
words|map('upper')|list
words|map('replace', 'p', 'P')|list
words|map('nosuch')|list
l|map()|list
none|map('upper')|list
n|map('upper')|list
users|selectattr('ok')|map(attribute='name')|list
users|selectattr('ok', 'defined')|map(attribute='name')|list
users|selectattr('age', 'equalto', 25)|map(attribute='name')|list
users|selectattr('age', '>', 25)|map(attribute='name')|list
users|rejectattr('ok')|map(attribute='name')|list
users|selectattr('name', 'in', ['Bob', 'Zoe'])|list|length
messages|selectattr('role', 'equalto', 'user')|first
messages|selectattr('role', 'ne', 'system')|list|length
messages|rejectattr('role', '==', 'system')|map(attribute='content')|join
l|select('odd')|list
l|select('gt', 1)|list
[0, 1, '', 'a']|select|list
l|reject('odd')|list
l|reject('nosuch')|list
l|select|first
users|groupby('age')
users|groupby('city')|map(attribute='grouper')|list
users|groupby('city', case_sensitive=true)|map(attribute=0)|list
users|groupby('ok', default=false)|length
users|map('attr', 'name')|list
s|attr('upper') is defined
d|attr('b') is defined
d|attr('keys') is defined
nope|default('x')
nope|d
none|default('x')
none|default('x', true)
''|default('x', true)
''|default('x', boolean=true)
0|d(5, true)
d.nope|default(d.nope2)|default('z')
nope.x|default('y')
'42'|int
'42.7'|int
' 42 '|int
'abc'|int
'abc'|int(-1)
'0x1A'|int(base=16)
'1A'|int(0, 16)
'101'|int(base=2)
'1_000'|int
none|int
42.9|int
-42.9|int
true|int
[]|int(7)
'inf'|int
nope|int
'1e3'|int
'3.14'|float
'abc'|float
'abc'|float(1.5)
'1e3'|float
' -inf '|float
'nan'|float
none|float
7|float
nope|float
42.55|round
42.45|round(1)
2.5|round
3.5|round
42|round
42|round(-1)
1250|round(-2)
42.55|round(1, 'floor')
42.55|round(1, 'ceil')
42.1|round(0, 'ceil')|int
42|round(0, 'floor')
1.005|round(2)
12345.678|round(-2)
'a'|round
42.5|round(1, 'x')
2.675|round(2)
'%s and %d'|format('a', 5)
'%(a)s-%(b)05.1f'|format(a=1, b=2.25)
'%s'|format
'%s %s'|format(1)
'%d'|format('a')
'%5s|%-5s|%05d|%+d|% d|%x|%X|%o|%e|%g|%%|%c|%r|%.2f|%.1s'|format('a','b',42,42,42,255,255,8,12345.678,0.00001,65,'q',3.14159,'xyz')
'%#x %#o %i %u %5.1f %-8.3e| %G %F %*d'|format(255, 8, 3.9, 4, 2.25, 12345.6789, 1e-10, 1.5, 5, 42)
'%s' % 'x'
'%s' % (1,)
'%s %s' % (1, 2)
'%s' % [1, 2]
'%s' % {'a': 1}
'%(k)s' % {'k': 'v'}
'%(z)s' % {'k': 'v'}
'abc' % []
'abc' % 5
'%q' % 5
'%a' % 'é'
'%.3d|%8.3d' % (5, -5)
'%c' % 'ab'
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a} {b[0]} {c.b}'.format(a=1, b=[2], c=d)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+} {:,} {:_} {:x} {:#x} {:b} {:e} {:.2f} {:%} {:g}'.format(42, 1, 1234567, 1234567, 255, 255, 5, 12345.678, 3.14159, 0.25, 1e-7)
'{:10.3f}|{:<10}|{:^10}|{:010}'.format(3.14159, 2.5, 1, -3.5)
'{!r} {!s} {!a}'.format('é', 'é', 'é')
'{:{}}'.format('a', 4)
'{:{w}.{p}}'.format('abcdef', w=8, p=3)
'{{}} {}'.format(1)
'{} {0}'.format(1)
'{'.format(1)
'}'.format(1)
'{}'.format()
'{x}'.format(y=1)
'{:d}'.format('a')
'{:s}'.format(1)
'{:,.2f} {:08,.1f} {:c} {:.3} {:.3}'.format(1234567.891, 1234.5, 65, 1234.5, 12.0)
'{0.name}'.format(users[0])
'{:}'.format([1])
'{:5}'.format([1])
'{a}'.format_map({'a': 1})
'a\nb\n\nc'|indent
'a\nb\n\nc'|indent(2)
'a\nb\n\nc'|indent(2, true)
'a\nb\n\nc'|indent(2, true, true)
'a\nb'|indent('> ', first=true)
none|indent
''|indent
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9, true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(11, false, '...', 0)
'foo bar baz qux'|truncate(9, end='')
'abc'|truncate(2)
'abcdefghij'|truncate(3, leeway=0)
'one two, thrée_4 - five'|wordcount
'abc'|center(10) ~ '|'
'abcd'|center(9) ~ '|'
'abc'.center(9, '*') ~ '|'
'abcd'.center(9, '*')
'abc'.center(8, '*')
1000|filesizeformat
1500000|filesizeformat
1|filesizeformat
500|filesizeformat(true)
1048576|filesizeformat(true)
'a b/é?'|urlencode
'<a href="x">&\'</a>'|e
'<'|e ~ '<'
('<'|e) + '<'
'<' + ('<'|safe)
('<'|e)|e
('<'|e)|forceescape
['<'|safe]
'<b>'|safe
('<%s>'|safe) % '<'
('<b>'|safe)|upper
('a<'|safe).replace('a', '<')
('-'|safe).join(['<', '<'|safe])
12|string + '3'
none|string
[1]|string|length
d|tojson
d|tojson(ensure_ascii=true)
d|tojson(indent=2)
d|tojson(indent=0)
d|tojson(indent='\t')
users|tojson(indent=4, sort_keys=true)
d|tojson(separators=(',', ':'))
d|tojson(false, none, (',', ': '))
{'b': 1, 'a': 2}|tojson(sort_keys=true)
{'b': 1, 2: 2}|tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson
{(1, 2): 3}|tojson
[1.0, 1e20, 1e-7, -0.0, 123456789]|tojson
('inf'|float)|tojson
('nan'|float)|tojson
nope|tojson
none|tojson
[nope]|tojson
'é\u2028\x7f\x01"\\/😀'|tojson
'é\u2028\x7f\x01"\\/😀'|tojson(true)
(1, [2])|tojson
range(3)|tojson
d.items()|tojson
''|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}]|tojson(indent=1)
s|tojson(5, 5)
' a b  c '.split()
' a b  c '.split(' ')
'a,b,c'.split(',', 1)
'a,b,c'.rsplit(',', 1)
' a b c '.split(none, 1)
' a b c '.rsplit(none, 1)
'a b c'.split(maxsplit=1)
'abc'.split('')
''.split()
''.split(',')
'a<x>b<x>c'.split('<x>')[-1]
messages[2].content.split('</think>')[-1].lstrip('\n')
messages[2].content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')
'a\nb\r\nc\x0bd\u2028e'.splitlines()
'a\nb\n'.splitlines(true)
'xxhixx'.strip('x')
'xyhiyx'.strip('xy')
'  hi '.strip()
'  hi '.lstrip() ~ '|'
'  hi '.rstrip() ~ '|'
'hi'.strip(none)
'hi'.strip(1)
'éé你é'.strip('é')
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith(['H'])
s.startswith('W', 7)
s.endswith('World')
s.endswith(('x', 'd'))
s.endswith('o', 0, 5)
s.startswith('', 100)
s.find('o')
s.rfind('o')
s.find('zz')
s.find('o', 5)
s.find('o', -4)
u.find('😀')
s.index('o')
s.index('zz')
s.count('l')
s.count('')
u.count('')
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
s.replace('', '-', 3)
u.upper()
u.lower()
'ß'.casefold()
'hello world'.title()
"they're bill's".title()
'HELLO'.capitalize()
'Hello'.swapcase()
'abc'.isalpha()
'é你'.isalpha()
'abc1'.isalnum()
'123'.isdigit()
'²'.isdigit()
'½'.isnumeric()
'١٢'.isdecimal()
''.isdigit()
' \t'.isspace()
'\x1c'.isspace()
'aB'.islower()
'ab1'.islower()
'Hello World'.istitle()
'HelloWorld'.istitle()
'abc'.isascii()
''.isascii()
'a_b'.isidentifier()
'1a'.isidentifier()
'a\n'.isprintable()
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'x'.removesuffix('')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('=')
'abc'.rpartition('=')
'42'.zfill(5)
'-42'.zfill(5)
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '.')
'a\tb'.expandtabs(4)
','.join(['a', 'b'])
','.join([1])
','.join('abc')
','.join({'a': 1, 'b': 2})
'abc'.nosuch()
'abc'.nosuch
'abc'.__class__
'abc'.__class__.__mro__
''|attr('__class__')
d.get('b')
d.get('zz')
d.get('zz', 5)
d.get([1])
d.keys()
d.values()|list
d.items()
d.keys()|list
d.keys()[0] is defined
d.keys()|length
'b' in d.keys()
{'a': 1}.values()
{'a': 1}.copy()
d.update({'x': 1})
d.pop('b')
d.pop is defined
d.clear()
l.append(4)
l.append is defined
l.pop()
l.index(1)
l.index(9)
l.count(3)
l.copy()
(1, 2, 1).count(1)
(1, 2).index(2)
l.reverse
l.sort()
f.is_integer()
(4.0).is_integer()
users[0]['name'] ~ users[-1].name
messages[0]['role'] == 'system' and messages[1:]|length == 2
messages[-1].content[:7]
messages[::-1]|map(attribute='role')|join('>')
messages|map(attribute='content')|map('trim')|list
raise_exception('No ' ~ 'way: {"a"}')
raise_exception(nope)
raise_exception()
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S.%f %A %j %p %-d %y %% %z|%Z|')
strftime_now(1)
strftime_now
a.b.c
[1,2
{'a' 1}
1 +
'abc
foo(
foo(a=1, 2)
foo(a=1, a=2)
foo(**{}, **{})
1 2
(1
1)
]
a b
1..2
a.
$
x!
a ? b
x | 
x is
{{ 1 }}
[x for x in l]
lambda: 1
l[1,2]
'a' not 'b'
and
in
not
s|upper()|lower()
s|replace(old='l', new='L')
s|replace('l')
s|upper(1)
s|default(1, 2, 3)
s|join(d='-')
s.replace(old='l', new='L')
s.split(sep=',', maxsplit=1)
s.split(*[','])
dict(**{'a': 1})
dict(**{1: 1})
range(*[2, 4])|list
dict(a=1, **{'a': 2})
s.upper
[s.upper]
l|map('upper')
range
[[1, [2, [3]]], {'k': {'k': ['v']}}]
{'a': 1}.a
{'keys': 1}.keys
{'keys': 1}['keys']
{'pop': 1}.pop
{'pop': 1}['pop']
1.5.x
0.1 + 0.7
100000000000000000000000.0
1/3
2/3*100
1e22
123456.789e3
5e-324
1.7976931348623157e308
true
True
none
None
false is false
[true, none]
"a" "b" ~ 'c'
'a'.upper().lower()
(s|upper).lower()
s|upper|first
-l[0]
-n|abs
not n is odd
2 if n is even else 3
n is even and f > 3
'%s'|format(nope)
nope.append(1)
[nope] == [nope]
d.a + [1]
d['é"\'\\\n']
'a' < 1 or true
true or 1/0
false and 1/0
1 if true else 1/0
users|length > 2 and users[2].tags is defined
l.0
l.1 + l.2
s.encode is defined or true
""" 

STATEMENTS = [
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in l %}{{ loop.nope }}{{ loop|length }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }};{% endfor %}",
    "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }};{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for a, in [(1,)] %}{{ a }}{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for x in nope %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{{ x }}{% endfor %}",
    "{% for x in l %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in none %}{{ x }}{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ loop.last }};{% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in l if loop %}{{ x }}{% endfor %}",
    "{% set ns = namespace(k=0) %}{% for x in [1, 2, 3] if x > ns.k %}{% set ns.k = 2 %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}else{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else{% endfor %}",
    "{% for x in l %}{% for y in 'ab' %}{% if y == 'b' %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% break %}", "{% if yes %}{% continue %}{% endif %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in l %}{% set y %}a{% break %}{% endset %}{{ y }}{% endfor %}end",
    "{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{% endfor %}",
    "{% for x in l %}{% with %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endwith %}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}{{ loop(n.c) }}{% else %}leaf{% endfor %}",
    "{% for n in tree %}{{ loop(n.c) }}{% endfor %}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% for loop in l %}{% endfor %}",
    "{% for true in l %}{% endfor %}", "{% for x.y in l %}{% endfor %}", "{% for x l %}{% endfor %}",
    "{% for x in l|map('string') %}{{ loop.length }}{{ loop.last }}{{ x }}{% endfor %}",
    "{% for x in l|map('string') %}{{ loop.last }}{{ loop.length }}{{ x }}{{ loop.revindex }}{% endfor %}",
    "{% for x in l|reverse %}{{ x }}{% endfor %}",
    "{% for x in l if x != 2 %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }}{{ loop.revindex }} {% endfor %}",
    "{% for m in messages %}{{ m.role }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for g in users|groupby('age') %}{{ g.grouper }}:{{ g.list|length }}{{ g[0] }} {% endfor %}",
    "{% for age, us in users|groupby('age') %}{{ age }}{{ us|map(attribute='name')|join }} {% endfor %}",
    "{% for x in l %}{{ x }}{% endfor %}{{ x }}{{ loop }}",
    "{% for x in l, %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in l if yes else m %}{% endfor %}", "{% for x in (l if yes else m) %}{{ x }}{% endfor %}",
    "{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}", "{% if no %}a{% elif no %}b{% else %}c{% endif %}",
    "{% if no %}a{% endif %}", "{% if 1, 2 %}t{% endif %}", "{% if %}{% endif %}", "{% if yes %}", "{% endif %}",
    "{% if yes %}{% endfor %}", "{% else %}", "{% if yes: %}colon{% endif %}", "{% if yes %}{% else %}{% elif no %}{% endif %}",
    "{% if 'nosuch' is filter %}{{ 1|nosuch }}{% else %}ok{% endif %}",
    "{% if no %}{% for x in l %}{{ 1|nosuch }}{% endfor %}{% endif %}", "{{ (1|nosuch) if no else 2 }}",
    "{% if no %}{{ 1 is nosuch }}{% endif %}x", "{% if yes %}{{ 1|nosuch }}{% endif %}",
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ y }}{{ x }}", "{% set (x, y) = [1, 2] %}{{ y }}{{ x }}",
    "{% set x = 1, 2 %}{{ x }}", "{% set x, y = 1 %}", "{% set x = %}", "{% set 1 = 2 %}", "{% set none = 2 %}",
    "{% set x.y = 1 %}", "{% set d.y = 1 %}", "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in l %}{% if loop.first %}{% set q = i %}{% endif %}{{ q }}|{% endfor %}{{ q }}",
    "{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns }}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace() %}{{ ns.x }}{% set ns.x = 1 %}{{ ns['x'] }}",
    "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is sameas ns }}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", "{% set ns = namespace(items=1, get=2) %}{{ ns.items }}{{ ns.get }}{{ 'x' in ns }}",
    "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set s = 5 %}{% endif %}{{ s }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]{{ x|length }}", "{% set x | upper | replace('A', 'z') %}ab{% endset %}{{ x }}",
    "{% set x %}{% set inner = 1 %}{% endset %}{{ inner }}", "{% set ns = namespace() %}{% set ns.t %}text{% endset %}{{ ns.t }}",
    "{% set x | length %}abc{% endset %}{{ x + 1 }}", "{% set x = s if yes %}{{ x }}", "{% set x = nope %}{{ x is defined }}",
    "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m() }}{{ m(b=1, a=0) }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}{% set y = 2 %}{{ m() }}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m() %}{% set z = 1 %}{% set s = 'in' %}{{ s }}{% endmacro %}{{ m() }}{{ s }}{{ z }}", "{% macro m() %} x {% endmacro %}{{ m()|trim }}{{ m }}",
    "{% macro m(a) %}{{ caller(a) }}{% endmacro %}{% call(v) m(5) %}<{{ v }}>{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body{{ n }}{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% if caller %}y{% else %}n{% endif %}{% endmacro %}{{ m() }}",
    "{% call s.upper() %}{% endcall %}", "{% call m %}{% endcall %}", "{% call range(3) %}{% endcall %}", "{% macro m(caller) %}{{ caller }}{% endmacro %}", "{% macro m(caller=3) %}{{ caller }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}",
    "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}in{% endcall %}{% endmacro %}{{ b() }}",
    "{% macro m(a, b) %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}{% endmacro %}{{ m(1, 2) }}", "{% set f = s.upper %}{{ f() }}",
    "{% for x in l %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{% for a in varargs %}{{ loop.index }}{{ a }}{% endfor %}{% endmacro %}{{ m(*l) }}",
    "{% filter upper %}abc{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}banana{% endfilter %}", "{% filter length %}abc{% endfilter %}", "{% filter nosuch %}{% endfilter %}", "{% filter upper %}{% set w = 1 %}{% endfilter %}{{ w }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}{% endwith %}", "{% with %}{% set g = 1 %}{{ g }}{% endwith %}{{ g }}", "{% with a, b = (1, 2) %}{{ b }}{% endwith %}",
    "{% block x %}in {{ s }}{% endblock %}", "{% for i in l %}{% block y %}{{ i }}{% endblock %}{% endfor %}", "{% for i in l %}{% block y scoped %}{{ i }}{% endblock %}{% endfor %}", "{% block x %}{% endblock %}{% block x %}{% endblock %}", "{% set a = 1 %}{% block x %}{{ a }}{% set a = 2 %}{% endblock x %}{{ a }}",
    "{% raw %}{{ x }} {% if %}{% endraw %}", "a {% raw -%}  x  {%- endraw %} b", "{% raw %}\n x\n{% endraw %}\ny", "a\n  {%- raw %} x {% endraw -%}  \n b", "{% raw %}", "{% endraw %}", "{%raw%}{%endraw%}",
    "a{# comment #}b", "a {#- c -#} b", "a\n  {# c #}\nb", "{# {{ x }} {% if %} #}x", "{#", "{# a #} #}", "a  {#+ c +#}\nb",
    "{% generation %}x{{ n }}{% endgeneration %}", "a{% generation %}b{% set q = 1 %}{% endgeneration %}{{ q }}", "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}\n{% endgeneration %}{% endfor %}", "{% generation %}", "{%- generation -%} x {%- endgeneration -%} ", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% generation x %}{% endgeneration %}", "{% print 1, 2, s %}", "{% print %}", "{% do l %}", "{% nosuch %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{% if no %}{% include 'x' %}{% endif %}ok", "{% autoescape false %}<{{ '<' }}{% endautoescape %}", "{% trans %}x{% endtrans %}",
    "  {% if yes %}\n  x\n  {% endif %}\ny", "  {%- if yes -%}\n  x\n  {%- endif %}\ny", "  {%+ if yes +%}\n  x\n  {%+ endif %}\ny", "a {{- 1 -}} b", "a\n\n {{- 1 -}} \n\nb", "{{ 1 }}\n{{ 2 }}\n", "{{ 1 }}\n\n", "\n{{ 1 }}", "{% if yes %}\n\nx{% endif %}\n\n", "x {% if yes %} y {% endif %} z", "\t{% if yes %}\ta\n\t{% endif %}\tb",
    "a\r\nb\rc\n{% if yes %}\r\nx\r\n{% endif %}\r\n", "{{ 'a\r\nb'|length }}", "{{ '''\n''' }}", "{{ \"a\nb\" }}", "a{% set x = 1 %}\nb", "a\n   {% set x = 1 %}  \nb", "{{ 1 }}   {% set x = 1 %}\nb", "   {{ 1 }}", "   {# c #}   x", "{% if yes -%}\n\n  x {% endif %}", "{%- set a = 1 %}\n\n{%- set b = 2 %}\n{{- a ~ b }}",
    "{{", "{{ 1", "{{ }}", "{%", "{% %}", "{% if", "}} %}", "{ { 1 } }", "{{ '}}' }}", "{{ {'a': {'b': 1}} }}", "{{ {'a':1}}}", "{{-1}}", "{{+1}}", "{{ -1 }}", "{{- -1 }}", "{%if yes%}x{%endif%}", "{{1}}{{2}}", "{{ (1 }}", "{{ [1) }}", "{{ 'a' }}}", "{{{ 1 }}}", "{{ '\\'' }}", "plain", "", "\n", "\n\n", " ", "{", "%}", "é{{ u }}你",
    "{{ 'x' if messages[0].role == 'system' else 'y' }}", "{{ messages[0]['content'] + '\\n' }}", "{% set loop_messages = messages[1:] if messages[0]['role'] == 'system' else messages %}{{ loop_messages|length }}",
    "{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% endif %}{% for m in messages %}{% if loop.index0 == 0 and system_message is defined %}{{ system_message }}{% endif %}{{ m['content'].strip() }}{% endfor %}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 1) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}ok", "{{ bos_token }}{{ bos_token is defined }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}{{ c.nope }}", "{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set it = l|map('string') %}{{ it|list }}{{ it|list }}{{ it|first }}", "{% set it = l|select %}{% for x in it %}{{ x }}{% break %}{% endfor %}{{ it|list }}", "{% set it = l|map('nosuch') %}ok", "{% set it = l|map('upper') %}{{ it|length }}", "{% set it = l|map('string') %}{{ it[0] is defined }}{{ '1' in it }}{{ it|list }}{% if it %}t{% endif %}",
    "{% set x = l|selectattr('a')|list %}{{ x }}", "{% set a = [1] %}{% set b = a + [2] %}{{ a }}{{ b }}", "{% set x = dict(a=1) %}{% set y = dict(x, b=2) %}{{ x }}{{ y }}",
    "{% set dt = strftime_now('%d %B %Y') if strftime_now is defined else 'x' %}{{ dt }}", "{% set x = 'a' %}{% set x = x ~ x %}{% set x = x ~ x %}{{ x }}", "{% macro t(x) -%}\n  {%- if x is string -%}s{%- elif x is mapping -%}m{%- elif x is iterable -%}i{%- else -%}o{%- endif -%}\n{%- endmacro -%}\n{{ t('a') }}{{ t({}) }}{{ t([]) }}{{ t(1) }}{{ t(none) }}",
    "{% for k, v in {'a': 1, 'b': {'c': 2}}.items() recursive %}{{ k }}{% if v is mapping %}({{ loop(v.items()) }}){% else %}={{ v }}{% endif %}{% endfor %}", "{%- for x in l -%}\n  {{ x }}\n{%- endfor -%}\n", "{% for x in l -%}\n {{ x }} \n{% endfor %}", "{% set ns = namespace(found=false) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.found %}{% set ns.found = true %}{{ loop.index0 }}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set content = messages[2].content %}{% if '</think>' in content %}{% set content = content.split('</think>')|last %}{% endif %}{{ content|trim }}", "{% set x = caller %}{{ x is defined }}", "{% set a = b = 1 %}", "{% set a += 1 %}", "{% for x in range(3) %}{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{%- macro f(p) %}{{ p.type|default('any')|upper }}{% endmacro %}{{ f({'type': 'string'}) }}{{ f({}) }}",
]
