"""Write the files of the sample corpus that cannot be edited by hand.

The sample corpus, ``cookbook/corpus``, describes the fictional Qingshan Tea Cooperative. Most of
its files are plain UTF-8 text and are edited where they lie. This script makes the other eight from
the texts below:

* ``handbook/员工安全手册.docx``                 safety handbook (Chinese)
* ``workshop/红茶发酵与烘焙.docx``               how black tea is made (Chinese)
* ``reports/2024-annual-report.docx``            annual report (English)
* ``reports/2024年茶叶质量检验报告.pdf``         quality report (Chinese)
* ``workshop/machine-maintenance-manual.pdf``    maintenance manual (English)
* ``reports/member-meeting-minutes-2025.pdf``    minutes of a meeting (English)
* ``handbook/tools-and-vehicles.txt``            house rules (English, CRLF line ends)
* ``guesthouse/入住须知.txt``                    notes for guests (Chinese, gb18030 bytes)

It needs two packages that lazyrag itself does not install::

    pip install reportlab python-docx
    python tools/make_corpus.py

The output is deterministic: with the same versions of the packages, every run writes the same
bytes. The Chinese PDF uses the font STSong-Light, which PDF readers supply, so no font file is
needed.

A text is a list of blocks with an empty line between them. A block that starts with ``#`` is a
heading (one ``#`` for each level), a block whose lines start with ``|`` is a table whose first row
is its head, and anything else is one paragraph, whose line ends in this file mean nothing.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from xml.sax.saxutils import escape

import docx
from docx.oxml.ns import qn
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4, A5
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.pdfmetrics import registerFont
from reportlab.platypus import (
    BaseDocTemplate,
    Flowable,
    Frame,
    PageTemplate,
    Paragraph,
    Spacer,
    Table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reportlab.pdfgen.canvas import Canvas

# The date of creation that every Word file states.
CREATED = datetime(2025, 1, 12, 9, 0, tzinfo=UTC)

CORPUS = Path(__file__).resolve().parent.parent / "cookbook" / "corpus"

Language = Literal["zh", "en"]


@dataclass(frozen=True)
class Document:
    """One .docx or .pdf file: its text and its properties."""

    path: str
    title: str
    author: str
    language: Language
    text: str
    paper: tuple[float, float] = A4


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the highest."""

    level: int
    text: str


Rows = list[list[str]]

TOOLS_AND_VEHICLES = """\
TOOLS AND VEHICLES

House rules of the estate, edition of June 2024. Kept by Wei Guoqiang in the repair shop.

1. Keys

All vehicle keys hang on the numbered board in the office. Taking a key means writing your name, the time
and the reading of the counter into the trip book; bringing it back means writing the counter again. A key
that is not on the board by 18:30 is looked for by telephone, and the second time in a month it costs the
driver the use of that vehicle for two weeks.

2. Who may drive what

The two small trucks may be driven by anyone who holds a class C licence and has done the hill drive with
Wei Guoqiang, which takes about ninety minutes. The minibus with twelve seats is driven by Wei Guoqiang and
Tan Jun and by nobody else. The three electric three-wheelers may be driven from the age of eighteen after
half a day of practice on the drying ground.

Nobody rides on the load bed of anything, not even for the last hundred metres.

3. Speed and load

On the estate tracks the limit is 15 kilometres an hour, and on the road through Shimen village it is 25. A
three-wheeler carries 300 kilograms at most, and no more than 200 on the steep bend above the reservoir. In
fog the headlights are on and the horn is sounded at each of the five blind corners.

4. Charging and fuel

The three-wheelers are charged in the brick shed between 22:00 and 6:00, when electricity costs 0.31 yuan
per kilowatt-hour. Only the grey sockets may be used. A battery that is hot to the touch rests for one hour
before it is plugged in. The fuel card for the trucks covers 400 yuan a week; the receipt goes into the tin
box on the same day.

5. The monorail on the North Terrace

The rack monorail carries up to 200 kilograms of leaf or manure on slopes of up to 38 degrees. It never
carries people. Before the first run of the day the operator walks the lower sixty metres of the track and
looks for stones, branches and snakes. The engine is stopped with the lever and not with the ignition; after
a stop on the slope the brake is to be set by hand.

6. Hand tools

Shears, hoes and saws are marked with a coloured ring: green for the garden, red for the workshop, white for
the guest house. They are back on their hooks by 18:00. Shears are sharpened on Mondays, and a pair with
more than two notches is exchanged without discussion. A tool that has been lost is paid for by half, up to
150 yuan; a tool that broke at work costs the user nothing.

7. Brush cutters and pruning machines

Brush cutters are used only with visor, ear muffs and shin guards. Other people keep a distance of fifteen
metres. The fuel is a mixture of forty parts of petrol to one part of oil, mixed in the yellow can and in no
other. The two-man pruning machine is cleaned with a brush and warm soda water after each plot, so that
anthracnose is not carried from one plot to the next.

8. Lending to members

Members of the cooperative may borrow hand tools free of charge for three days. A brush cutter costs them 25
yuan a day, and a small truck with a driver costs 2.8 yuan a kilometre. Between 20 March and 10 May nothing
is lent.

9. Damage

Whoever dents a vehicle says so on the same day. Damage that is reported is paid by the estate up to 800
yuan; damage that is found later is paid by the last name in the trip book.
"""

GUEST_NOTES = """\
听雨小院入住须知

欢迎来听雨小院做客。下面这些事情写得细一点，是为了让您住得安心，也让邻居和茶树睡得安稳。有任何需要，
请拨分机209找陶玉兰，夜间由周䶮值班。

一、入住与退房

每天14时30分以后办理入住，次日11时30分以前退房。来得早，行李可以先放在门厅，到廊下喝茶等候。每间房收
押金200元，退房时验看房间以后当场退还。请带好身份证，十六周岁以下的孩子可以凭户口簿登记。

二、怎么来

从云浦高铁站到小院大约四十分钟车程。我们每天有两班接站车，发车时间是11时10分和15时40分，每位25元，请
在前一天晚上8点以前预约。自己开车来的，最后三公里山路很窄，会车请让上山的车先走。院外有停车位十二个，
其中两个带充电桩，充电按每度1.2元收费。

三、吃饭

早餐供应时间为7时15分到9时15分，有白粥、笋干包子、茶叶蛋和当天磨的豆浆。晚餐要提前说，下午3点以前报
给厨房，四菜一汤的家常套餐每位58元，素食者请注明。厨房不接受外带的野味，也不代为加工菌子。

四、热水与用电

热水由屋顶的太阳能供应，连续三天阴雨时改用电加热，水温会低一些，请在晚上9点以前洗澡。房间里不能使用
电炉、电熨斗和大功率电热毯，需要熨衣服请到一楼洗衣间。洗衣机免费，烘干每次15元。

五、安静时间

晚上10时30分到第二天早上6时30分是安静时间，院子里不放音乐，不打牌，不大声说话。春茶季加工坊夜里也要
开工，靠西的两间房会听到机器声，怕吵的客人可以到前台领一副耳塞。

六、宠物

小院欢迎体重不超过15公斤的狗，每次住宿收清洁费60元，最多带一只。狗在院子里要拴绳，不能进茶室，也不能
进茶园，因为狗毛会粘在茶芽上。猫请留在家里，院里的老猫“阿灰”不肯与别的猫同住。

七、防火与爱山

房间里不能抽烟，抽烟请到院门外的石桌旁。不放烟花，不放孔明灯，不在林子里生火。小院后面的步道一圈是
3.4公里，天黑以后不要独自上山。捡到的竹笋请不要带走，那是村里人的收成。

八、遗失物品

客人落下的东西，我们登记以后保管90天。需要寄回的，运费到付；食物只保管三天。贵重物品请放进房间的保险
箱，或者交给前台代管，代管不收费。
"""

SAFETY_HANDBOOK = """\
本手册为第四版，自2025年1月10日起施行，由安全员魏国强编写，主任沈怀远批准。每位员工领一册，离职时交回。

# 一、总则

新员工上岗以前要接受8个小时的安全培训，并通过书面考试，90分以上为合格；不合格的补训一天再考，两次不
合格的不安排上机。转岗人员补训4个小时。每季度第一周的星期三下午举行一次演练，内容依次是灭火、触电急
救、山地搜救和食物中毒处置。

任何人看到危险都有权叫停，叫停错了也不追究。

# 二、防火

## 2.1 报警与疏散

发现火情先喊人，再拨内线8119，说清楚地点、烧的是什么、有没有人被困。听到连续的铜钟声，所有人放下手里
的活，沿绿色标志走到大门外停车坪集合，由各组组长点名。点名没有结束之前，谁也不能回去拿东西。

## 2.2 灭火器与燃气

全社共有灭火器26具，每月5日检查一次，压力指针不在绿区的当天送换。炒茶间着火，首先关掉门边的燃气总阀：
红色手轮顺时针转四分之一圈。油锅起火盖锅盖，不许浇水。萎凋楼是木楼，楼内不得有明火，同时上楼的人数不
超过二十人。

# 三、机械与用电

开机以前扎紧袖口，长发盘进帽子里，取下戒指和手串。揉捻机运转时不许戴手套，也不许伸手拨叶。机器检修必
须断电，并在开关上挂“正在检修，禁止合闸”的牌子，谁挂的牌由谁摘。几种常见险情的处置顺序如下表。

| 险情 | 第一步 | 第二步 | 找谁 |
| 手被机器夹住 | 按急停按钮 | 手动倒转滚轴，不硬拉 | 邓守义 |
| 有人触电 | 拉总闸 | 用干木杆拨开电线 | 魏国强 |
| 烫伤 | 冷水冲20分钟 | 盖干净纱布，不抹牙膏 | 陶玉兰 |
| 煤气味 | 关总阀，开门窗 | 人到上风口，不碰开关 | 魏国强 |

表中所列的人不在场时，由当班组长代替。湿手不得碰配电箱；潮湿天气使用的移动插座必须带漏电保护器，每周
一上午按一次试验按钮。

# 四、野外作业

## 4.1 高温

气温到35℃，上午11时至下午3时不安排上山；到38℃，全天停止露天作业，工资照发。夏天每人每天供应淡盐茶
水两升，仁丹和藿香正气水放在各片的工具箱里。有人头晕、不出汗、皮肤发烫，要立即抬到阴凉处降温，同时打
电话叫车。

## 4.2 蛇与马蜂

进茶行先用竹竿敲打茶丛，穿高帮鞋。山上最常见的毒蛇是竹叶青。被咬以后不要跑动，不要用嘴吸，也不要割开
伤口；让伤肢低于心脏，用宽绷带松松缠住，记下时间，马上送县人民医院。医院备有抗蛇毒血清，路程22公里，
开车大约35分钟。发现马蜂窝，周围10米插黄旗，由魏国强晚上处理。

# 五、急救

急救箱共有五只，分别放在加工坊、店铺、小院前台、办公室和坡顶小屋，每月盘点一次，用过的东西当天补齐。
自动除颤仪挂在店铺门口右手边，开盖即有语音提示。目前持有急救员证的共有六人，名单贴在每只急救箱的盖子
里面。

# 六、事故报告

受伤无论轻重，都要在24小时以内填写红色事故单；没有伤到人的险情也要填，报告一次奖励50元。瞒报的，取消
当年评优资格。重伤以上的事故，由主任在一小时之内报告镇政府。
"""

BLACK_TEA = """\
本规程适用于老丛红茶和桂花红茶，由加工坊邓守义口述，学徒许小满整理，2024年11月20日定稿。

# 一、原料

老丛红茶只用树龄四十年以上的茶树，采一芽二叶到一芽三叶。夏茶从6月12日前后开始做，秋茶做到10月8日寒露
为止。雨天采的鲜叶不做红茶，宁可让它老在树上。

# 二、萎凋

鲜叶上槽，摊叶厚度18厘米，下面吹28℃的暖风，每小时停风十分钟。前四个小时不翻，以后每两个小时翻一次，
动作要轻，碰伤的叶子会提前变红。一般需要14到16个小时，萎凋叶含水量降到百分之六十到六十二就可以下槽。
老师傅不看仪器：抓一把叶子捏紧，松开以后慢慢散开，嫩梗弯而不断，就是到了。

# 三、揉捻

红茶要揉透，总共75分钟，分三次加压，每次加压以后松压五分钟。揉好的叶子细胞破碎率在百分之八十以上，茶
汁沾手发黏。揉捻间的温度不超过24℃，墙上要洒水。

# 四、发酵

## 4.1 条件

发酵室温度26℃，相对湿度95%，叶子放在木盘里，厚10厘米，上面盖一层拧干的湿布。叶温最高不得超过30℃，
超过了就翻拌散热。整个过程三个半到四个小时，春天长一些，夏天短一些。每隔三十分钟由当班师傅看一次叶象，
按下表判断。

| 叶象 | 颜色 | 气味 | 处理 |
| 一级 | 青绿 | 强烈青草气 | 继续发酵 |
| 二级 | 青黄 | 青草气减弱 | 继续，检查湿布 |
| 三级 | 黄红 | 清香转花香 | 准备烘干机 |
| 四级 | 红黄 | 花果香 | 立即上烘 |
| 五级 | 暗红 | 略带酸味 | 过度，单独存放 |

## 4.2 宁轻勿重

叶象到四级就要上烘，因为在烘干的头几分钟里发酵还会继续。到了五级的叶子，香气沉闷，只能做茶枕，不得拼
入正茶。2023年7月有一盘叶子忘在墙角，到了五级才发现，整整28公斤做了枕头，这件事写在这里给后来的人提
个醒。

# 五、烘干

毛火用115℃的热风，摊叶1.5厘米，烘15分钟，烘到七八成干。下机摊凉40分钟，让叶子里面的水走到外面来。足
火85℃，摊叶3厘米，烘60分钟，烘到梗子一折就断、手捻成粉。毛茶装铁桶，放满二十天再进行焙火。

焙火用竹焙笼和荔枝木炭，炭上盖灰，笼中温度保持70℃，每笼2.5公斤，焙五个小时，每四十分钟翻一次。焙茶
的人那天不吃大蒜。

# 六、桂花窨制

## 6.1 配花

桂花选金桂，清早带露摇落，用4号筛去掉花梗和叶片。每100公斤茶坯配鲜花25公斤，一层茶、一层花，堆成30厘
米厚的方堆。

## 6.2 通花与起花

静置窨花的总时间是10个小时。堆温升到42℃要通花，把堆子扒开散热半个小时，再收拢。窨完用振动筛起花，筛
出来的花渣不回用，送到茶园堆肥。起花以后立即用90℃复火20分钟，把水分降下来，最后按千分之五的比例拌入
干桂花作点缀。

# 七、记录

每一盘发酵叶都有编号，记上盘、下盘的时间和叶象等级。记录本写满以后由方晓收存，保存期五年。
"""

ANNUAL_REPORT = """\
Presented by the director, Shen Huaiyuan, on 12 January 2025. All amounts are in yuan, and all the weights
are those of finished tea.

# The year in brief

The cooperative made more tea in 2024 than in any year since 2017, in spite of a late frost and a long dry
spell. Takings rose by 8.0 per cent to 5,270,000 yuan. After all costs a surplus of 612,000 yuan was left,
against 498,000 in the year before. No one was seriously hurt at work, and three small accidents cost eleven
working days in total.

# Production

The spring crop of Maojian fell a little because the frost took part of the early buds. Summer and autumn
leaf went into black tea instead, for which demand has grown in each of the last four years.

| Tea | 2023 (kg) | 2024 (kg) | Change |
| Qingshan Maojian | 5,410 | 5,180 | -4.3 % |
| Pond White | 1,040 | 1,260 | +21.2 % |
| Old Bush Black | 2,010 | 2,350 | +16.9 % |
| Osmanthus Black | 720 | 850 | +18.1 % |
| Total | 9,180 | 9,640 | +5.0 % |

It took 4.3 kilograms of fresh leaf to make one kilogram of tea. The best single day was 8 April, when 1,470
kilograms of leaf came in and the workshop did not stop until seven the next morning.

# Sales

## Where the money came from

Wholesale brought in 2,740,000 yuan, the shop and the web shop together 1,915,000, the guest house 486,000,
and tours and classes 129,000. Two buyers, one in the provincial capital and one in Yunpu, account for 31
per cent of wholesale. That is more than we like, and the aim is to come below 25 per cent by 2026.

## Abroad

For the first time tea left the country under our own name: 240 kilograms of Old Bush Black went to a tea
house in Lyon in September. The price was 30 per cent above the domestic one, but papers, tests and freight
took nearly all of the difference.

## The guest house

The house sold 1,430 room nights, which is 55.5 per cent of those on offer. Guests stayed 1.9 nights on
average. One guest in six came back for at least the third time.

# Costs

Wages and social insurance for the permanent staff came to 2,180,000 yuan and seasonal pickers to 968,000.
Packaging cost 318,000, gas and electricity 241,000, repairs and depreciation 402,000, and everything else
549,000. Gas was 9 per cent cheaper than in 2023, and most of what this saved was spent on overtime in
April.

# Investments

A colour sorter with two chutes was bought in August for 186,000 yuan. It replaces the work of six women who
used to pick stalks by hand in the wet months; all of them were moved to packing at the same wage. The roof
of the withering loft was re-tiled for 73,500 yuan with tiles from a house that was being pulled down in
Shimen village.

# People

Two colleagues retired: Yu Dehai after thirty-one years in the garden and Ma Xiuying after twenty-six in the
shop. Three were hired, the youngest of whom, Xu Xiaoman, is twenty and is learning black tea. The staff
spent 46 hours per head in training, a third of it on first aid and food hygiene.

# Certificates

Cloud Gate received its organic certificate on 6 September after three years of conversion. The certificate
is valid for twelve months and covers only that plot. The food safety licence of the workshop was renewed
until 30 April 2029.

# Outlook for 2025

We expect about 9,800 kilograms of tea. Four mu of old bushes on the North Terrace will be cut back to 45
centimetres and will give no crop for two years. The web shop is to have an English page by June. The board
will also ask the members to decide on the cold room, which has been too small for three seasons.
"""

QUALITY_REPORT = """\
编制：检验员方晓　　审核：沈怀远　　日期：2025年1月8日

# 一、概况

2024年全年共检验成品茶63批，其中青山毛尖31批、下塘白叶8批、老丛红茶17批、桂花红茶7批。一次检验合格61
批，一次合格率96.8%，比上年提高1.4个百分点。两批不合格品经处理后复检合格，没有一批流入市场。

每批茶按四分法取样500克，一半用于检验，一半密封留样。留样柜温度保持在5℃，绿茶留样两年，红茶留样三年，
到期销毁时由两个人签字。

# 二、理化指标

水分用烘箱法测定，每周与快速水分仪比对一次，两者相差超过0.3个百分点就停用快速仪。各品类全年平均值见
下表，数字均为质量百分比。

| 品名 | 水分 | 水浸出物 | 茶多酚 | 游离氨基酸 |
| 青山毛尖 | 5.1 | 42.6 | 17.9 | 4.1 |
| 下塘白叶 | 5.4 | 38.7 | 11.2 | 7.3 |
| 老丛红茶 | 5.8 | 37.5 | 8.6 | 3.2 |
| 桂花红茶 | 6.0 | 36.1 | 8.1 | 2.9 |

下塘白叶的氨基酸含量比2023年高0.6个百分点，主要原因是3月下旬气温偏低，叶片白化的时间长。毛尖的水浸出
物略有下降，与部分批次摊青过头有关，已在10月的技术会上讨论。

# 三、感官审评

审评小组由五人组成，采用密码审评，去掉一个最高分和一个最低分再取平均。审评杯容量为150毫升，投茶3克，
沸水冲泡，绿茶4分钟，红茶5分钟。

全年毛尖平均得分91.4分，老丛红茶90.2分，下塘白叶92.8分，桂花红茶88.5分。单批最高分94.6分，批号
QS-24-M1-0405-A，评语是“嫩香持久，汤色浅绿明亮，滋味鲜爽带甜”。低于85分的共有四批，全部降为二级出
售。

# 四、不合格批次

## 4.1 老丛红茶，批号QS-24-R2-0718-B

出厂前水分为7.6%，超过内控标准6.5%。原因是当晚停电两小时，足火中断以后没有补足时间。处理办法是80℃复
烘35分钟，复检水分5.9%，准予放行。

## 4.2 桂花红茶，批号QS-24-O1-1003-A

花渣含量2.3%，超过内控标准1.0%。原因是振动筛的筛网破了一个洞。换网以后重新过筛，复检结果为0.7%。此后
加工坊规定，起花之前必须对着灯检查筛网。

# 五、农残与重金属

全年送检12批，由云浦县农产品质量检测中心检测，每批检测农药残留69项。其中十一批未检出任何农药；北坡一
批夏茶检出联苯菊酯，含量为每公斤0.04毫克，远低于国家标准。经查，该农药来自相邻果园打药时的飘移，双方
已商定在交界处种两行木槿作隔离带，果园打药要提前一天通知。

铅含量最高的一批为每公斤0.62毫克，其余批次都在0.5毫克以下。

# 六、顾客投诉

全年收到质量投诉9件，比上年少5件：包装破损4件，口味不符3件，分量不足2件。平均处理时间2.6天。分量不足
的两件都出在同一台包装秤上，秤的传感器已经更换，费用由厂家承担。

# 七、仪器与人员

快速水分仪每六个月送检一次，分析天平每年送检一次，烘箱温度每季度用标准温度计核对。方晓于5月取得高级
评茶员证书，另有两名同事正在参加中级培训，预计2025年6月考试。

# 八、2025年的改进

第一，检验室增加一台色差仪，预算18,000元，用来代替肉眼比对汤色。第二，夏秋红茶每批加测茶黄素。第三，
把顾客投诉的平均处理时间压缩到两天以内。第四，每季度请一位老顾客参加盲评，听一听不喝本社茶的人怎么说。
"""

MAINTENANCE_MANUAL = """\
Pocket edition for the workshop crew, written by Wei Guoqiang and Deng Shouyi, second printing, February
2025. Carry it in your coat and not in your head.

# 1. Three rules

Isolate, lock, try: switch the machine off, hang your own padlock on the switch and press the start button
to be sure that it stays dead. Only then take off a cover. The person who hung the padlock is the only one
who removes it.

Grease is cheap and bearings are not. Use lithium grease number 2 from the green cartridge everywhere except
on the dryer chain, which takes the heat-proof paste in the tin.

Write every job into the machine book on the day on which it is done, with the reading of the hour counter.

# 2. Drum fixers DF-60

The workshop has two drum fixers. Each has four support rollers, a gas burner with nine nozzles and a drive
belt.

## 2.1 Every day

Let the empty drum turn for fifteen minutes after the last leaf, with the burner off, so that it does not
warp. Sweep it out with the bamboo brush while it is still warm. Scale left in the drum gives the tea black
specks on the next day.

## 2.2 Every week

Press the drive belt halfway between the pulleys with your thumb. It should give 12 mm; tighten it if it
gives more than 16. Clean the nozzles with the 0.8 mm needle and never with a drill. Brush soapy water over
the gas joints and look for bubbles.

## 2.3 Every year

In January the drum is lifted and the support rollers are measured. A roller that has worn below 96 mm in
diameter is replaced together with its partner, since a drum on unequal rollers wanders to one side.

# 3. Rolling tables RT-45

There are six rolling tables. Their brass battens wear on the inner side first; turn them after two seasons
and replace them when they are less than 4 mm high. The oil in the gearbox is changed after the first 100
hours and from then on every 1,000 hours. It takes 1.6 litres of gear oil, up to the middle of the sight
glass.

The pressure lid is raised when the table stands still overnight. Leaf juice is sour and eats brass, so
rinse the table with warm water after every shift and dry it with a cloth; do not use the hose near the
motor.

# 4. Chain dryers CD-10

## 4.1 Chain and trays

Check the tension of the chain every fortnight: the lower run may sag by 25 mm. Both tension screws are
turned by the same number of turns. A bent tray is taken out at once, because it catches on the scraper and
takes twenty others with it.

## 4.2 Hot air

The heat exchanger is looked over with a torch in the first week of March and again in July. Smoke in the
tea means a crack. Close the dryer, let it cool for three hours and call Wei Guoqiang; welding it hot makes
it worse. The chimney is swept every 300 hours of firing.

# 5. Colour sorter

The sorter needs clean air and clean glass. Drain the water from the compressor tank before each shift and
keep the air at 0.6 MPa. Wipe the glass in front of the cameras every four hours with the blue cloth and
pure alcohol. The wiper rubber lasts about six weeks. If the sorter throws out good leaf, load the stored
programme again before you touch the sliders.

# 6. Table of intervals

| Machine | Part | Interval | Work |
| Drum fixer | Support rollers | 80 hours | Grease, two strokes each |
| Drum fixer | Flame sensor | 1 month | Wipe, test cut-out in 5 seconds |
| Rolling table | Crank bearings | 50 hours | Grease, three strokes each |
| Rolling table | Foundation bolts | 3 months | Tighten to 70 Nm |
| Chain dryer | Chain | 120 hours | Heat-proof paste, thin film |
| Chain dryer | Fan belt | 500 hours | Replace both belts |
| Withering fan | Blades | 2 weeks | Brush off dust and fluff |
| Colour sorter | Air filter | 250 hours | Replace the cartridge |

# 7. Faults and what to do

| Fault | Likely cause | Remedy |
| Drum squeals | Dry roller | Grease; if hot, let it rest first |
| Burner goes out | Dirty flame sensor | Wipe; change it after the third time |
| Table knocks | Loose crank pin | Stop at once, tighten to 110 Nm |
| Chain jumps | Worn sprocket | Replace when the teeth look like hooks |
| Sorter shows A7 | Air below 0.45 MPa | Look for leaks, drain the tank |

# 8. Spare parts

The cabinet in the repair shop holds the parts without which we cannot work in April: two drive belts B-72,
one flame sensor, four support rollers, a set of brass battens, thirty dryer trays, ten metres of chain and
two air filters. Whoever takes a part hangs the red tag on its hook. Wei Guoqiang reorders on Fridays; most
parts take nine days to arrive, chain takes three weeks.

# 9. Closing down for the winter

After the last autumn lot all the machines are washed, dried for a day and rubbed with camellia oil where
the steel is bare. Belts are slackened. Mouse wire is put across every air inlet. The work takes four people
five days and ends with noodles in the canteen.
"""

MEETING_MINUTES = """\
Held on Saturday, 18 January 2025, from 14:00 to 16:50 in the old school of Shimen village. Chair: Shen
Huaiyuan. Minutes: Qin Ping. Present: 41 of the 52 member households; the quorum of 35 was reached.

# 1. Opening

The chair greeted the members and asked for a minute of silence for Zhou Tingzhang, one of the founders, who
died in November at the age of ninety-one. The minutes of the last meeting were approved without changes.
The agenda was accepted, with a complaint about the monorail added as item 6.

# 2. Use of the surplus

The board proposed to pay out 40 per cent of last year's surplus, to put 35 per cent into the reserve and to
keep 25 per cent for equipment. This makes a dividend of 240 yuan on each of the 1,020 shares. Mr Fan asked
for a payment of half the surplus instead; his motion received nine votes. The proposal of the board was
passed with 33 votes in favour, six against and two abstentions. The money is paid on 27 January, before the
Spring Festival.

# 3. New cold room

Fang Xiao explained that in May and June up to 1.8 tonnes of green tea have to be stored with a fruit dealer
in Yunpu, at 1,400 yuan a week. Three offers had been obtained. The board recommended the middle one: a cold
room of 88 square metres behind the packing room, for 340,000 yuan, with two separate cooling machines.

Financing: 140,000 yuan from the reserve and 200,000 as a loan from the rural credit cooperative at 3.6 per
cent over five years. Mrs Jiang wanted to know what happens when the power fails. The room holds its
temperature for nine hours with closed doors, and a connection for a hired generator is part of the offer.

Decision: passed with 38 votes in favour and three against. Building begins after the autumn tea, and not
earlier than 15 October.

# 4. Drip lines for the North Terrace

Luo Chunmei presented a plan for drip irrigation on the upper terraces at a cost of 212,000 yuan. The
discussion was long. Several older members pointed out that deep-rooted seedlings had survived the dry
spells of 2003 and 2013 without a drop of water, and that pipes would harm the dry stone walls. The motion
was lost by 17 votes to 22, with two abstentions. It may be put forward again in two years.

# 5. Election of the supervisory committee

Three seats had to be filled for a term of three years. Elected were:

| Name | Household no. | Votes |
| Lu Ailian | 14 | 36 |
| Fan Zhigang | 29 | 31 |
| Peng Shulin | 7 | 27 |

Not elected was Cao Yong, with 24 votes. All those elected accepted. Lu Ailian is the first woman on the
committee; she remarked that it had taken thirty-eight years.

# 6. Noise of the monorail

The Ye family lives forty metres from the lower station and is woken by the engine from half past four in
spring. It was agreed that the monorail does not run before 6:00 on any day, and that the cooperative pays
for an exhaust silencer, about 900 yuan, to be fitted before the picking begins. The family withdrew its
claim for damages.

# 7. Admission of members

Two young households from Shimen village, Gu Lei and Tao Wenjing, applied for membership. The entrance fee
is 2,000 yuan and the smallest holding is five shares. Both were admitted by a show of hands, with no vote
against. They have the right to vote from the next meeting on.

# 8. Any other business

Deng Shouyi invited the members to a tasting of the autumn black teas on 8 March. He Li asked everybody not
to sell tea in unmarked bags beside the car park, because guests take it for ours. A lost umbrella from the
last meeting was returned to Mr Peng, to applause.

The next general meeting takes place on 17 January 2026 at the same place.
"""

DOCX_DOCUMENTS = (
    Document(
        path="handbook/员工安全手册.docx",
        title="员工安全手册",
        author="魏国强",
        language="zh",
        text=SAFETY_HANDBOOK,
    ),
    Document(
        path="workshop/红茶发酵与烘焙.docx",
        title="红茶发酵与烘焙规程",
        author="邓守义",
        language="zh",
        text=BLACK_TEA,
    ),
    Document(
        path="reports/2024-annual-report.docx",
        title="Annual Report 2024",
        author="Shen Huaiyuan",
        language="en",
        text=ANNUAL_REPORT,
    ),
)

PDF_DOCUMENTS = (
    Document(
        path="reports/2024年茶叶质量检验报告.pdf",
        title="2024年茶叶质量检验报告",
        author="方晓",
        language="zh",
        text=QUALITY_REPORT,
    ),
    Document(
        path="workshop/machine-maintenance-manual.pdf",
        title="Machine Maintenance Manual",
        author="Wei Guoqiang",
        language="en",
        text=MAINTENANCE_MANUAL,
        paper=A5,
    ),
    Document(
        path="reports/member-meeting-minutes-2025.pdf",
        title="Minutes of the General Meeting 2025",
        author="Qin Ping",
        language="en",
        text=MEETING_MINUTES,
    ),
)


def blocks(text: str, language: Language) -> Iterator[Heading | Rows | str]:
    """Yield the headings, tables and paragraphs of a text."""
    joiner = "" if language == "zh" else " "
    for chunk in text.strip().split("\n\n"):
        lines = chunk.split("\n")
        if chunk.startswith("#"):
            marks, _, title = chunk.partition(" ")
            yield Heading(len(marks), title)
        elif chunk.startswith("|"):
            yield [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        else:
            yield joiner.join(lines)


def write_text(path: str, text: str, language: Language, encoding: str, newline: str) -> None:
    """Write a text that has only paragraphs, one on each line, with an empty line between them."""
    paragraphs = [str(block) for block in blocks(text, language)]
    content = (newline * 2).join(paragraphs) + newline
    (CORPUS / path).write_bytes(content.encode(encoding))


def write_docx(document: Document) -> None:
    """Write a Word file with real heading styles, fixed properties and fixed dates."""
    word = docx.Document()
    if document.language == "zh":
        for name in ("Normal", "Title", "Heading 1", "Heading 2"):
            fonts = word.styles[name].element.get_or_add_rPr().get_or_add_rFonts()
            fonts.attrib.pop(qn("w:eastAsiaTheme"), None)
            fonts.set(qn("w:eastAsia"), "SimSun")

    properties = word.core_properties
    properties.title = document.title
    properties.author = document.author
    properties.last_modified_by = document.author
    properties.comments = ""
    properties.language = "zh-CN" if document.language == "zh" else "en-GB"
    properties.created = CREATED
    properties.modified = CREATED

    word.add_heading(document.title, level=0)
    for block in blocks(document.text, document.language):
        if isinstance(block, Heading):
            word.add_heading(block.text, level=block.level)
        elif isinstance(block, str):
            word.add_paragraph(block)
        else:
            table = word.add_table(rows=len(block), cols=len(block[0]), style="Table Grid")
            for number, row in enumerate(block):
                for column, text in enumerate(row):
                    table.cell(number, column).text = text
            for cell in table.rows[0].cells:
                cell.paragraphs[0].runs[0].bold = True
            word.add_paragraph()

    buffer = io.BytesIO()
    word.save(buffer)
    (CORPUS / document.path).write_bytes(with_fixed_dates(buffer.getvalue()))


def with_fixed_dates(archive: bytes) -> bytes:
    """Give every member of a zip archive the same date; python-docx gives it the present one."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w") as target:
        for name in source.namelist():
            member = zipfile.ZipInfo(name, date_time=CREATED.timetuple()[:6])
            member.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(member, source.read(name))
    return buffer.getvalue()


def write_pdf(document: Document) -> None:
    """Write a PDF file with a title, headings, tables and page numbers."""
    chinese = document.language == "zh"
    body = ParagraphStyle(
        "body",
        fontName="STSong-Light" if chinese else "Helvetica",
        fontSize=10.5,
        leading=18 if chinese else 15,
        spaceAfter=7,
        wordWrap="CJK" if chinese else None,
    )
    bold = body.fontName if chinese else "Helvetica-Bold"
    title = ParagraphStyle(
        "title", parent=body, fontName=bold, fontSize=18, leading=24, spaceAfter=14
    )
    cell = ParagraphStyle("cell", parent=body, fontSize=9, leading=13, spaceAfter=0)
    head = ParagraphStyle("head", parent=cell, fontName=bold)
    headings = {
        level: ParagraphStyle(
            f"heading{level}",
            parent=body,
            fontName=bold,
            fontSize=size,
            leading=size + 6,
            spaceBefore=8,
            keepWithNext=1,
        )
        for level, size in ((1, 14), (2, 12))
    }

    margin = document.paper[0] / 10
    buffer = io.BytesIO()
    pdf = BaseDocTemplate(
        buffer,
        pagesize=document.paper,
        leftMargin=margin,
        rightMargin=margin,
        topMargin=margin,
        bottomMargin=margin,
        title=document.title,
        author=document.author,
        subject="Qingshan Tea Cooperative",
        creator="make_corpus.py",
        lang="zh-CN" if chinese else "en-GB",
        invariant=1,
    )

    story: list[Flowable] = [Paragraph(escape(document.title), title)]
    for block in blocks(document.text, document.language):
        if isinstance(block, Heading):
            story.append(Paragraph(escape(block.text), headings[block.level]))
        elif isinstance(block, str):
            story.append(Paragraph(escape(block), body))
        else:
            story.append(pdf_table(block, head, cell, pdf.width))
            story.append(Spacer(1, 9))

    def page_number(canvas: Canvas, _: BaseDocTemplate) -> None:
        canvas.setFont(body.fontName, 9)
        canvas.drawCentredString(document.paper[0] / 2, margin / 2, str(canvas.getPageNumber()))

    frame = Frame(margin, margin, pdf.width, pdf.height)
    pdf.addPageTemplates(PageTemplate(frames=[frame], onPageEnd=page_number))
    pdf.build(story)
    (CORPUS / document.path).write_bytes(buffer.getvalue())


def pdf_table(rows: Rows, head: ParagraphStyle, cell: ParagraphStyle, width: float) -> Table:
    """Return a ruled table as wide as the text, with columns as wide as their longest cells
    need.
    """
    weights = [max(len(row[column]) for row in rows) + 8 for column in range(len(rows[0]))]
    styles = [head] + [cell] * (len(rows) - 1)
    return Table(
        [
            [Paragraph(escape(text), style) for text in row]
            for row, style in zip(rows, styles, strict=True)
        ],
        colWidths=[width * weight / sum(weights) for weight in weights],
        repeatRows=1,
        style=[("GRID", (0, 0), (-1, -1), 0.5, colors.grey), ("VALIGN", (0, 0), (-1, -1), "TOP")],
    )


def main() -> None:
    """Write the eight files."""
    registerFont(UnicodeCIDFont("STSong-Light"))
    for document in DOCX_DOCUMENTS + PDF_DOCUMENTS:
        (CORPUS / document.path).parent.mkdir(parents=True, exist_ok=True)
    for document in DOCX_DOCUMENTS:
        write_docx(document)
    for document in PDF_DOCUMENTS:
        write_pdf(document)
    write_text("handbook/tools-and-vehicles.txt", TOOLS_AND_VEHICLES, "en", "utf-8", "\r\n")
    write_text("guesthouse/入住须知.txt", GUEST_NOTES, "zh", "gb18030", "\n")


if __name__ == "__main__":
    main()
