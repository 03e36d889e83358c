"""Words that the check of statements compares: numerals, units, negations, opposites."""

from __future__ import annotations

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth"
    " fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
).split()
ENGLISH_NUMBERS = {
    **{word: number for number, word in enumerate(_BELOW_TWENTY)},
    **{word: 10 * tens for tens, word in enumerate(_TENS, start=2)},
    **{word: number for number, word in enumerate(ORDINALS, start=1)},
    "dozen": 12,
}
SCALES = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
SCALES |= {"mln": 1e6, "bln": 1e9, "bn": 1e9}
MULTIPLES = {"double": 2.0, "twice": 2.0, "triple": 3.0, "thrice": 3.0, "quadruple": 4.0}
SHARES = {"half": 50.0, "third": 100 / 3, "quarter": 25.0, "fifth": 20.0, "tenth": 10.0}
HAN_DIGITS = {character: number for number, character in enumerate("零一二三四五六七八九")}
HAN_DIGITS["两"] = 2
HAN_SCALES = {"十": 1e1, "百": 1e2, "千": 1e3, "万": 1e4, "亿": 1e8}
MONTHS = (
    "january february march april may june july august september october november december"
    " jan feb mar apr may jun jul aug sep oct nov dec"
).split()
MEASURE_WORDS = (
    "折阶面首篇轮组局幅冠号个位名次颗种艘座部支场架条人倍岁届级层张只本家章点节卡枚台所套份件期步"
    "项类款门站辆"
)
# dimension, factor to its base unit, names with "_" for blanks
UNITS = """
length .000000001 nm nanometers nanometres 纳米
length .000001 μm µm micrometer micrometers micrometre micrometres 微米
length .001 mm millimeter millimeters millimetre millimetres 毫米
length .01 cm centimeter centimeters centimetre centimetres 厘米 公分
length 1 m meter meters metre metres 米 公尺
length 1000 km kilometer kilometers kilometre kilometres 公里 千米
length .3048 ft feet foot 英尺
length .0254 inch inches 英寸
length 500 里
length 1609.344 mi mile miles 英里
length 1852 nautical_mile nautical_miles 海里
mass .001 mg milligram milligrams 毫克
mass 1 g gram grams 克 公克
mass 1000 kg kilogram kilograms 公斤 千克
mass 1000000 tonne tonnes tons 吨 公吨
mass 1000000000000 megaton megatons 兆吨
mass 1000000000000000 gigaton gigatons
mass 453.59237 lb lbs pound pounds 磅
mass 500 斤
time .000001 μs microsecond microseconds 微秒
time .001 ms millisecond milliseconds 毫秒
time 1 s sec second seconds 秒 秒钟
time 60 min minute minutes 分钟
time 900 刻钟
time 3600 h hour hours 小时
time 86400 day days 天
time 604800 week weeks 周 星期
time 2629800 month months 个月
time 7889400 季度 个季度
time 31557600 year years 年
time 315576000 decade decades
time 3155760000 century centuries 世纪
month 1 月
ordinal 1 ordinal
data 1 byte bytes 字节
data 1000 kb kilobyte kilobytes
data 1000000 mb megabyte megabytes
data 1000000000 gb gigabyte gigabytes
data 1000000000000 tb terabyte terabytes
data 1024 kib
data 1048576 mib
data 1073741824 gib
frequency 1 hz 赫兹
frequency 1000 khz
frequency 1000000 mhz
frequency 1000000000 ghz
rotation 1 rpm
percent 1 % percent
dollar 1 $ dollar dollars 美元
euro 1 € euro euros 欧元
sterling 1 £ 英镑
yuan 1 ¥ yuan 元 人民币 元人民币
yuan .1 角 角钱 毛钱
hongkong 1 港元 港币 元港币
taiwan 1 新台币 元新台币 台币
yen 1 日元 日圆
won 1 韩元 韩圆
ruble 1 卢布
rupee 1 卢比
celsius 1 °c ℃ 摄氏度
fahrenheit 1 °f ℉ 华氏度
power 1 w watt watts 瓦
power 1000 kw kilowatt kilowatts 千瓦
power 1000000 mw megawatt megawatts 兆瓦
volt 1 v volt volts 伏
volume 1 l liter liters litre litres 升 公升
volume .001 ml milliliter milliliters millilitre millilitres 毫升
volume .000001 μl µl microliter microliters microlitre microlitres 微升
area 1 hectare hectares 公顷
area .0666667 亩
area .0001 m² m2 square_metre square_metres square_meter square_meters 平方米
area 100 km² km2 square_kilometre square_kilometres square_kilometer square_kilometers 平方公里
area 258.9988 sq_mi square_mile square_miles 平方英里
area .40468564 acre acres 英亩
speed 1 km/h kilometers_per_hour kilometres_per_hour kilometers_an_hour kilometres_an_hour
speed 1.609344 mph miles_per_hour miles_an_hour
times 1 times 倍
weekday 1 weekday
"""

NEGATIONS = frozenset(
    "not never no none nobody nothing neither nor cannot without hardly barely unable".split()
)
# Words that deny what follows, but not in the words behind the bar.
HAN_NEGATION = (
    r"没有|没(?!收|落|有)|不再|不(?![仅但同断过管久少等足安良]|得不|可避免|可或缺)|未(?!来|必|央)"
    r"|并非|无法|毫无|从无|绝非|非(?![常洲法])"
)
MODES = (
    (
        r"(?i)\b(?:can|may|(?:is|are) (?:allowed|permitted))\b(?! ?not)|(?<!不)可以|(?<![不未])允许",
        (
            r"(?i)\b(?:cannot|can't|(?:can|must|may) not|mustn't|not (?:allowed|permitted)"
            r"|forbidden|prohibited)\b|不能|不得(?!不)|不可(?!避|或)|不允许|禁止"
        ),
    ),
    (
        r"(?i)\b(?:must|required|(?<!no )(?<!not )(?<!n't )(?:have|has|needs?) to)\b(?! ?not)|必须",
        (
            r"(?i)\b(?:no need|need not|needn't|(?:not|n't) (?:need|required|have to)|optional)\b"
            r"|无需|无须|不必|不需要|不用"
        ),
    ),
    (r"(?i)\b(?:still|remains?)\b|仍|依然", r"(?i)\bno longer\b|不再"),
)
"""Words of one mode, and of its opposite: allowed, forbidden; required, not; still, no longer."""
DENIALS = tuple(
    (
        "reject refus fail deni deny lack absen avoid prevent declin unlik instead rather except"
        " stop ceas disqualif exempt exclud forbid bann abolish outside"
        " 拒绝 失败 否认 缺乏 避免 反对 阻止 拒 未能 禁止 免除 免于 以免 除去 排除 解除 停止 终止"
        " 不足 极少"
    ).split()
)
# Opposites: words of one side, a bar, words of the other. Of those behind two bars both are true,
# from one side and from the other: only before the same word are they opposites.
OPPOSITES = """
largest biggest greatest | smallest least
larger bigger greater | smaller lesser
most | least fewest
more | fewer less
increase increases increased increasing rise rises rose risen grow grew grown growing | \
fall falls fell fallen falling drop drops dropped decrease decreases decreased decreasing \
decline declines declined declining shrink shrank reduce reduces reduced reducing
high | low
higher | lower
highest | lowest
success succeed succeeds succeeded | failure fail fails failed
open opened opens | close closed closes
accept accepts accepted approved | reject rejects rejected refused declined
much many | little few
cheap cheaper | expensive costlier
urban | rural
north northern | south southern
east eastern | west western
northeast | southwest
northwest | southeast
warm warmer hot hotter | cool cooler cold colder
present | absent
construction built build | demolition demolished destroyed
half | twice double
allow allows allowed permit permits permitted | forbid forbids forbidden prohibits prohibited
include includes included including | exclude excludes excluded excluding
required mandatory | optional
always | never rarely
all | none
left | right
import imports imported | export exports exported
older oldest | younger youngest
public | private
internal inside | external outside
maximum max | minimum min
above | below
positive | negative
support supports supported favored | oppose opposes opposed
strong stronger | weak weaker
large big | small little
rich wealthy | poor
male men man | female women woman
start starts started begin begins began | stop stops stopped end ends ended
true | false
fast faster quick quicker quickly rapidly | slow slower slowly
long longer longest | short shorter shortest
tall taller tallest | short shorter shortest
easy easier | difficult harder hard
same | different
add adds added | remove removes removed
create creates created | delete deletes deleted
common | rare uncommon
good better best | bad worse worst
heavy heavier heaviest | light lighter lightest
wide wider | narrow narrower
ancient old | modern new
friend friends ally allies | enemy enemies
peace | war
up upper | down lower
ascending | descending
temporary | permanent
automatic automatically | manual manually
synchronous | asynchronous
local | remote
attack attacked | defend defended
majority | minority
billions | millions thousands hundreds
millions | thousands hundreds
encrypted | unencrypted plaintext
gained gain gains | lost lose loses
raise raised raises | lowered reduce reduced reduces lower
expand expanded expands | contract contracted shrank shrink
arrive arrived arrives | depart departed leave left departs
alive | dead
victory | defeat
simple | complex
entirely fully completely | partly partially
forward forwards | backward backwards
top | bottom
clockwise | counterclockwise anticlockwise
conservative | liberal progressive
deep deeper | shallow shallower
dry | wet
dynamic | static
empty | full
even | odd
explicit explicitly | implicit implicitly
frequent frequently often | rare rarely seldom
guilty | innocent
horizontal | vertical
senior | junior
strict | lenient loose
major | minor
natural | artificial
day | night
physical | virtual
primary | secondary
profit | loss
sequential sequentially | parallel
single | multiple
surplus | deficit
thick thicker | thin thinner
upstream | downstream
summer | winter
show shows shown | hide hides hidden
visible | hidden invisible
online | offline
lowercase | uppercase
read reads | write writes
input | output
lock locks locked | unlock unlocks unlocked
father son brother king husband | mother daughter sister queen wife
joined joins join | left leaves leave
agreed agree agrees | disagreed refused
continued continues continue | stopped ceased ended
newest newer | oldest older
new | old
fail failed fails | pass passed passes
encourage encouraged encourages | discourage discouraged discourages
awake | asleep sleep sleeping
accelerate accelerated accelerates | slow slowed decelerate delay delayed
maximal | minimal
importing | exporting
strengthen strengthened strengthens strengthening | weaken weakened weakens weakening
recommend recommends recommended encourage encouraged | discourage discourages discouraged
简单 | 繁琐 麻烦
improve improved improves | worsen worsened deteriorate deteriorated
hire hired | fire fired dismissed
safe | dangerous unsafe
voluntary voluntarily | compulsory mandatory
domestic | foreign
predecessor | successor
ancestor ancestors | descendant descendants
absorb absorbed absorbs | emit emits emitted release released releases
predator predators | prey
central | peripheral
finite | infinite
peak | trough lowest
abundant plentiful | scarce
praise praised praises | criticize criticized criticised
love loved | hate hated
strengthening stronger | weakening weaker
tighten tightened | loosen loosened relaxed
widen widened | narrow narrowed
hard | soft
near nearer nearest | far farther farthest
enable enabled enables | disable disabled disables
client | server
upload uploaded uploads | download downloaded downloads
double | single triple
sender | receiver recipient
source | target
prefix | suffix
stable | unstable
appear appeared appears | disappear disappeared vanished
dark darker | light bright brighter
dawn morning | dusk evening
enter entered enters | leave left exit exited
expensive | cheap
unanimous unanimously | divided
heaven | hell
coastal | inland
land | sea
civilian | military
professional | amateur
optimistic | pessimistic
solid | liquid
acidic | alkaline
beginning | end
front | rear back
birth born | death died
married | divorced
promoted | demoted
elected | appointed
freshwater | saltwater marine
nocturnal | diurnal
单独 | 共同 一起
增加 增长 上升 提高 增强 上涨 升高 增大 | 减少 下降 降低 减弱 下跌 缩小 减小
多于 大于 超过 高于 | 少于 小于 低于
白天 | 夜间 夜晚 晚上
草食 | 肉食
更快 加快 加速 | 更慢 减慢 减速
成功 | 失败
支持 赞成 赞同 | 反对 抵制
允许 准许 | 禁止 不准
接受 同意 | 拒绝
开放 打开 开启 启用 | 关闭 禁用 停用
严格 | 宽松
最早 最先 | 最晚 最后
最好 | 最差
有利 | 不利
进攻 攻击 | 防守 防御
东北 | 西南
东南 | 西北
公开 | 秘密
延长 变长 | 缩短 变短
留着 保留 留下 | 倒掉 扔掉 丢弃
照常 | 停用 暂停 停止
扩大 扩张 | 缩小 收缩
变暖 温暖 炎热 | 变冷 寒冷
优点 | 缺点
必须 | 可选
开始 | 结束 停止
添加 新增 | 删除 移除
富裕 富有 | 贫穷 贫困
主动 | 被动
集中 | 分散
容易 | 困难
简单 | 复杂
永久 | 临时
自动 | 手动
常见 | 罕见
传统 | 现代
古代 | 现代
合法 | 非法
盈利 | 亏损
相同 | 不同
积极 | 消极
喜欢 喜爱 | 讨厌 厌恶
独立 | 依赖
夏季 夏天 | 冬季 冬天
淡水 | 咸水 海水
干燥 | 潮湿 湿润
读取 | 写入
显示 | 隐藏
编码 | 解码
加密 | 解密
水平 横向 | 垂直 纵向
静态 | 动态
全部 完全 | 部分
直接 | 间接
赢得 获得 取得 | 失去 丧失
保留 | 废除 取消
继续 | 停止 中断
加入 | 退出
任命 | 罢免 免职
建立 成立 | 解散 撤销
快速 迅速 急剧 | 缓慢 逐渐
开设 设立 开办 成立 | 关闭 撤销
大部分 大多数 多数 | 小部分 少部分 少数
很多 大量 | 很少 少量 少
增强 加强 | 削弱 减弱
吸收 | 排放 释放
流入 | 流出
鼓励 | 阻止 劝阻
主场 | 客场
领先 | 落后
当选 | 落选
上任 就任 | 卸任 离任
收入 | 支出
起飞 | 降落
出生 | 去世 逝世
充足 充分 | 不足 匮乏
光滑 | 粗糙
祖先 | 后代 后裔
前任 | 继任
乐观 | 悲观
安全 | 危险
和平 | 战争
朋友 | 敌人
先进 | 落后
城市 | 农村 乡村
沿海 | 内陆
陆生 | 水生
卵生 | 胎生
一年生 | 多年生
独居 | 群居
落叶 | 常绿
酸性 | 碱性
客运 | 货运
起点 | 终点
必须 | 无须 无需 不必
合并 | 分裂 拆分
上市 | 退市
盟友 | 对手
升级 晋升 | 降级 降职
繁荣 兴盛 | 衰落 衰退
before || after
first || last
early || late
earlier earliest || later latest
win wins won winning beat beats defeat defeats defeated || lose loses lost losing
buy buys bought || sell sells sold
买 购买 || 卖 出售
胜利 战胜 击败 获胜 || 失利 战败 败给 输给
以前 之前 || 以后 之后
早于 || 晚于
天然 | 人工 人造
"""
HAN_OPPOSITES = (
    "大小 多少 高低 长短 上下 左右 东西 南北 前后 内外 早晚 快慢 升降 增减 涨跌 男女 雌雄 公母"
    " 公私 新旧 胜败 胜负 攻守 进出 买卖 开关 加减 冷热 干湿 深浅 轻重 厚薄 强弱 粗细 宽窄 远近"
    " 老少 老幼 正负 正反 优劣 盈亏 明暗 生死 主次 古今 单多 真假 好坏 贫富 软硬 成败 松紧 疏密"
    " 横纵 凹凸 显隐 异同 收支 夫妻 昼夜 敌友 首末 难易 有无 阴阳"
).split()
"""Pairs of characters: words that differ in them alone are opposites."""
ADJECTIVE_ENDINGS = tuple(
    "able ible al ant ent ive ate ite ar ous ect act lete ly ance ence ity".split()
)
"""Of an English word's opposite."""
NAME_FORMS = """
american, america, united states, u.s, us, usa
british, britain, united kingdom, u.k, uk, england, english
french, france
spanish, spain
dutch, netherlands, holland
swiss, switzerland
soviet, ussr, russia, russian
polish, poland
turkish, turkey
danish, denmark
welsh, wales
greek, greece
irish, ireland
portuguese, portugal
norwegian, norway
united nations, un
european union, eu
oscar, oscars, academy award
nobel, nobel prize
"""
"""In each line: names of the same, one of which stands for another."""
FIRST_WORDS = frozenset(
    "since besides although though unlike despite until among within according like however later"
    " moreover today several many every per via each another even following once whereas unless"
    " along across behind beyond except inside near onto outside past toward towards upon almost"
    " also still instead here while both using without".split()
)
"""Words that may begin a sentence before a name, and are none."""

GENERAL_NOUNS = frozenset(
    "one ones it country company city town team club person people man woman group film movie book"
    " song series show event place area region part thing things way time times year years day days"
    " world state nation government organization organisation work name kind type number amount"
    " passage text document documentation source article report context himself herself itself"
    " themselves yourself oneself".split()
)
"""Nouns that may stand for another word of a source."""
HAN_GENERAL_NOUNS = tuple(
    "时间 时候 期间 阶段 地方 地点 地区 城市 国家 公司 企业 机构 组织 部门 人物 人士 人员 成员 名字 名称 籍贯 节目"
    " 作品 著作 书籍 法典 电影 电视剧 歌曲 专辑 类型 种类 问题 方法 方式 方面 内容 原因 结果 作用 数量 过程 活动 事件"
    " 项目 产品 功能 系统 程序 文件 数据 用户 信息 特点 特征 标准 规定 动物 植物 运动员 比赛 学校 领域 行业".split()
)
"""The same in Chinese: an answer repeats them from its question."""
HAN_FUNCTION_WORDS = frozenset(
    (
        "我们 你们 他们 她们 它们 这个 那个 这些 那些 这种 其中 其他 以及"
        " 因为 所以 由于 因此 但是 而且 并且 或者 如果 虽然 然而 可以 可能"
        " 能够 不能 不会 不是 没有 无法 未能 并非 已经 曾经 通过 根据 关于"
        " 对于 为了 作为 进行 一个 一些 一种 一样 之一 之间 以来 同时 当时"
        " 还有 还是 就是 也是 都是 只是 这样 那样 非常 十分 比较 从而 其 该"
        " 并 等 中 上 下 里 个 位 名 年 月 日 时 到 从 向 由 为 将 会"
        " 能 可 要 让 使 得 地 着 过 又 还 更 最 很 太 只 才 所 不 没"
        " 方面 情况 时候 部分"
        " 未 无 一 的 是 在 了 和 与 于 也 都 有 以 及 而 或 但 这 那 它 他 她 之 就 对"
    ).split()
)
_VERBS = """
begin began begun, break broke broken, bring brought, build built, buy bought, choose chose
chosen, come came, draw drew drawn, drink drank drunk, drive drove driven, eat ate eaten, fall
fell fallen, feel felt, fight fought, find found, fly flew flown, forbid forbade forbidden, get
got gotten, give gave given, go went gone, grow grew grown, hear heard, hold held, keep kept,
know knew known, lead led, leave left, lend lent, lose lost, make made, mean meant, meet met,
pay paid, rise rose risen, run ran, say said, see saw seen, sell sold, send sent, shoot shot,
sing sang sung, sit sat, sleep slept, speak spoke spoken, spend spent, stand stood, steal stole
stolen, swim swam swum, take took taken, teach taught, tell told, think thought, throw threw
thrown, understand understood, wear wore worn, win won, write wrote written
"""
IRREGULAR_VERBS = {
    form: verb for verb, *forms in map(str.split, _VERBS.split(",")) for form in forms
}
"""By each other form of a verb its first."""
ENGLISH_FUNCTION_WORDS = frozenset(
    "about above after again all also am any because been before being below between both can could"
    " did do does doing down during each few from further had has have having he her here hers him"
    " his i its just me more most my nor now off once only other our out over own same she should"
    " so some than those through too under until up us very we were would you your may might must"
    " shall".split()
)
GERMAN_WORDS = frozenset("der die das und ist ein eine von mit nicht wurde im den".split())
OPINIONS = (
    r"(?i:i (?:think|believe|feel|hope|guess|would|am|can|recommend)\b|in my (?:opinion|view)"
    r"|(?:please|let me know|feel free|thanks?|thank you|hello|hi|dear|sure|of course|certainly"
    r"|here (?:is|are)|you(?:'re| are) welcome|good (?:morning|question|luck)|great question)\b)"
    r"|我(?:认为|觉得|想|相信|希望|建议)|你好|您好|希望(?:这|以上|对)|谢谢|感谢|请(?:告诉|随时|注意|问|参考)|祝|当然|好的"
    r"|如(?:果)?(?:您|你)?(?:还)?有(?:其他|任何|更多)"
)
